"""The pages on which people come in with a token, and leave.

* `/enter` has a form that takes a token; a page that needs one has it, too, and is shown afterwards.
* `/enter/CODE`, which a server prints, leaves a token with the browser, once.
* `/leave` takes the token away; that of a printed address counts no more then.

The forms lead out of a path that begins with a token (`/~TOKEN/...`): it would count before the one that is given.
"""

from __future__ import annotations

import html
import re
from urllib.parse import quote

from trio_cogment.base.errors import CogmentError, InvalidArgumentError, RpcError
from trio_cogment.web.page_access import ENTER, LEAVE, PageAccess, cookie_of
from trio_cogment.web.replies import Reply, failure, html_page
from trio_cogment.web.requests import Request
from trio_cogment.web.routing import Route, Visit

_MAX_FORM_BYTES = 16 * 1024
#: Browsers keep no longer ones.
_MAX_COOKIE_CHARACTERS = 3800
#: A path of this server, with its query.
_PATH = re.compile(r"/[!-~]{0,2000}\Z")
_EXPLAINED = "This page needs a token, or the address that the server has printed when it started."
_OF_A_LINK = "The link that you have opened does not count, or not any more. Please ask for another one."


def sign_in_routes(access: PageAccess) -> list[Route]:
    """Return the routes; see the module.

    Args:
        access: who may come in.
    """
    pages = _Entrance(access)
    return [
        Route("GET", ENTER, pages.form, right=None),
        Route("GET", f"{ENTER}/{{code}}", pages.by_address, right=None),
        Route("POST", ENTER, pages.by_token, right=None, max_body_bytes=_MAX_FORM_BYTES),
        Route("GET", LEAVE, pages.ask_to_leave, right=None),
        Route("POST", LEAVE, pages.leave, right=None, max_body_bytes=_MAX_FORM_BYTES),
    ]


def refused_page(request: Request, error: CogmentError, *, presented: bool) -> Reply:
    """Return why somebody may not have a page, with a form for another token.

    Args:
        request: for the page.
        error: says why not.
        presented: a token has come with the request, so it is that which does not count.
    """
    reply = failure(error)
    text = error.message if isinstance(error, RpcError) else str(error)
    if reply.status == 401:
        explained = _OF_A_LINK if request.token else _EXPLAINED
        page = _form_page(request, 401, "Who are you?", *([_sentence(text)] if presented else []), explained)
    elif reply.status == 403:
        page = _form_page(request, 403, "Not possible", _sentence(text), label="Another token")
    else:
        page = html_page(request, reply.status, "Not possible", text)
    return Reply(page.status, page.body, page.content_type, reply.headers)


def _form_page(
    request: Request, status: int, title: str, *paragraphs: str, label: str = "Token", path: str = ""
) -> Reply:
    """Return a page with the form.

    Args:
        request: what it answers.
        status: see `html_page`.
        title: likewise.
        *paragraphs: likewise.
        label: of the field.
        path: is shown when somebody has come in; by default that of the request.
    """
    if not path:
        path = quote(request.path.encode("latin-1"), safe="/%:@!$&'()*+,;=~")
        path += f"?{request.query}" if request.query else ""
    content = (
        f'<form method="post" action="{html.escape(request.outside(ENTER))}">'
        f'<input type="hidden" name="to" value="{html.escape(path)}">'
        f'<label>{label} <input name="token" type="password" autocomplete="off" required></label> '
        '<button type="submit">Enter</button></form>\n'
    )
    return html_page(request, status, title, *paragraphs, content=content)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class _Entrance:
    def __init__(self, access: PageAccess) -> None:
        self._access = access

    async def form(self, visit: Visit) -> Reply:
        """Ask for a token."""
        return _form_page(visit.request, 200, "Who are you?", _EXPLAINED, path="/")

    async def by_address(self, visit: Visit) -> Reply:
        """Let somebody in who has the address. What only looks ahead (HEAD, a prefetch) does not use it up."""
        request = visit.request
        if request.method == "HEAD" or request.first(b"sec-purpose").startswith(b"prefetch"):
            return Reply(204)
        try:
            return self._entered(request, self._access.enter(visit.parameters["code"]), "/")
        except CogmentError as error:
            if visit.identity is not None:  # the same browser, for the second time
                return _lead_on(request, "/")
            status = failure(error).status
            return _form_page(request, status, "This address was used", _sentence(str(error)), path="/")

    async def by_token(self, visit: Visit) -> Reply:
        """Let somebody in who has a token."""
        given = visit.form()
        token, path = given.get("token", "").strip(), given.get("to", "")
        if not _PATH.match(path):
            path = "/"
        try:
            if len(token) > _MAX_COOKIE_CHARACTERS:
                raise InvalidArgumentError("the token is too long for a cookie")
            self._access.identify(token, local=False)
        except CogmentError as error:
            return _form_page(visit.request, failure(error).status, "Not possible", _sentence(str(error)), path=path)
        return self._entered(visit.request, token, path)

    def _entered(self, request: Request, token: str, path: str) -> Reply:
        page = _lead_on(request, path)
        return Reply(page.status, page.body, page.content_type, (self._access.set_cookie(request, token),))

    async def ask_to_leave(self, visit: Visit) -> Reply:
        """Show the button that leaves: a link alone, which others can place, changes nothing."""
        action = html.escape(visit.request.outside(LEAVE))
        content = f'<form method="post" action="{action}"><button type="submit">Leave</button></form>\n'
        return html_page(visit.request, 200, "Leave", "This browser forgets the token.", content=content)

    async def leave(self, visit: Visit) -> Reply:
        """Take the token away."""
        request = visit.request
        self._access.leave(cookie_of(request))
        cookie = self._access.set_cookie(request, "")
        if not request.wants_html:
            return Reply(204, headers=(cookie,))
        content = f'<p><a href="{html.escape(request.outside(ENTER))}">Come in again</a></p>\n'
        page = html_page(request, 200, "You have left", content=content)
        return Reply(page.status, page.body, page.content_type, (cookie,))


def _lead_on(request: Request, path: str) -> Reply:
    """Return a page that leads to another one.

    A browser that has come from elsewhere (a link in a terminal of another site) sends the cookie then, which it would
    not do after a redirection.
    """
    url = html.escape(request.outside(path))
    head = f'<meta http-equiv="refresh" content="0; url={url}">\n'
    return html_page(request, 200, "Come in", content=f'<p><a href="{url}">Go on</a></p>\n', head=head)
