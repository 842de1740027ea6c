"""What every server has for pages: what it is, the shared files, and the ways to come in and to leave.

* `/` says what this is. A route for `/` that is given before takes its place.
* `/enter/CODE`, which a server prints, leaves a token with the browser, once; `/enter` takes one that somebody has.
* `/leave` takes the token away.
"""

from __future__ import annotations

from trio_cogment.about import API_VERSION, GRPC_VERSION
from trio_cogment.errors import CogmentError, InvalidArgumentError
from trio_cogment.web.assets import Assets
from trio_cogment.web.page_access import ENTER, PageAccess
from trio_cogment.web.replies import Reply, failure, html_page, json_reply
from trio_cogment.web.routing import Route, Visit

#: Leads on from a page of the server itself: a browser that has come from elsewhere (a link in a terminal of another
#: site) sends the cookie then, which it would not do after a redirection.
_ON = '<meta http-equiv="refresh" content="0; url=/">\n'
_GO_ON = '<p><a href="/">Go on</a></p>\n'
_MAX_FORM_BYTES = 16 * 1024
#: Browsers keep no longer ones.
_MAX_COOKIE_CHARACTERS = 3800


def common_routes(access: PageAccess) -> list[Route]:
    """Return the routes; see the module.

    Args:
        access: who may come in.
    """
    pages = _Entrance(access)
    return [
        Route("GET", "/", about, right=None, foreign=True),
        Route("GET", f"{ENTER}/{{code}}", pages.by_address, right=None),
        Route("POST", ENTER, pages.by_token, right=None, max_body_bytes=_MAX_FORM_BYTES),
        Route("POST", "/leave", pages.leave, right=None, max_body_bytes=_MAX_FORM_BYTES),
        *Assets("trio_cogment.web").routes("/assets"),
    ]


async def about(_visit: Visit) -> Reply:
    """Answer with what this is."""
    return json_reply(200, "trio-cogment", version=API_VERSION, server=GRPC_VERSION)


class _Entrance:
    def __init__(self, access: PageAccess) -> None:
        self._access = access

    async def by_address(self, visit: Visit) -> Reply:
        """Let somebody in who has the address. What only looks ahead (HEAD, a prefetch) does not use it up."""
        request = visit.request
        if request.method == "HEAD" or request.first(b"sec-purpose").startswith(b"prefetch"):
            return Reply(204)
        try:
            return self._entered(visit, self._access.enter(visit.parameters["code"]))
        except CogmentError as error:
            return html_page(failure(error).status, "This address was used", str(error))

    async def by_token(self, visit: Visit) -> Reply:
        token = visit.form().get("token", "").strip()
        try:
            if len(token) > _MAX_COOKIE_CHARACTERS:
                raise InvalidArgumentError("the token is too long for a cookie")
            self._access.identify(token, local=False)
        except CogmentError as error:
            return html_page(failure(error).status, "Not possible", str(error), content='<p><a href="/">Back</a></p>\n')
        return self._entered(visit, token)

    def _entered(self, visit: Visit, token: str) -> Reply:
        page = html_page(200, "Come in", content=_GO_ON, head=_ON)
        return Reply(page.status, page.body, page.content_type, (self._access.set_cookie(visit.request, token),))

    async def leave(self, visit: Visit) -> Reply:
        return Reply(204, headers=(self._access.set_cookie(visit.request, ""),))
