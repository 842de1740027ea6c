"""People in trials: seats that a server holds, pages that come and go, and lobbies in which people wait."""
