"""Refused: a request that gets no answer, with the status and the words that it gets instead."""

from http import HTTPStatus


class Refused(Exception):  # noqa: N818 (an answer, not an error of ours)
    """Why, in HTTP's numbers and in people's words.

    >>> Refused(429, "come back later", retry_after=1).body()["error"]["type"]
    'rate_limit_error'
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, dict[str, str | None]]:
        """As OpenAI's clients read it."""
        return {
            "error": {
                "message": whole(self.message),
                "type": _TYPES.get(self.status, "server_error" if self.status >= 500 else _INVALID),
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """When to come back, if that is known."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


_INVALID = "invalid_request_error"
_TYPES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
"""The type of an error by its status, where it is not that the request was wrong."""


def whole(text: str) -> str:
    """The text with � for every half of a surrogate pair, which no answer can hold.

    >>> whole("half: " + chr(0xD800))
    'half: �'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def wrong(param: str, message: str, code: str | None = None) -> Refused:
    """The answer to a request with a wrong value."""
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, message, param=param, code=code)


def too_long(characters: int, most: int, param: str) -> Refused:
    """The answer to a text that is too long to be tokenised."""
    return Refused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"{param} has {characters:,} characters; at most {most:,} are read",
        code="text_too_long",
        param=param,
    )
