"""The budget of a process: who may hold how much of its memory, and who runs next.

All servers and channels of a run of Trio share one process. What waits in it for a slow peer takes memory from all, and
what one peer keeps busy takes turns from all, whatever protocol they speak. So there is one pool of bytes (`memory`,
over `byte_pool`), one order of turns (`turns`, over `turn_order`), and one place for the shares of accounts (`shares`,
`quotas`, `peer_limits`, `transfer_slots`). gRPC, the browsers' side of a port, data logs and gateways stand on them,
and they know none of these.

Memory is lent, not divided: a borrower may have a part of what is free, so that one alone gets most of it and a crowd
gets little each. Nobody minds how long a loan lasts while there is enough; once somebody has to wait, `debts` ends
those of which nothing moves.
"""
