"""What a service is started with: where it listens, who may ask, what it shows and how much it does at once.

Every value can stand in the environment as KVLEDGER_ and its name. Whether the values go together is checked
by whoever opens the service to others (access.py), so that it holds for every way to start one.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from kvledger.core.errors import InvalidArgument

DEFAULT_PORT = 8470

TOKEN_CHARACTERS = range(16, 513)
"""Lengths of a token: below 16 it can be guessed, and above 512 it does not fit a header line well."""

Positive = Annotated[int, Field(ge=1)]


class ApiSettings(BaseSettings):
    """Settings of the service.

    `host` other than loopback needs a `token`. `allowed_hosts` are names by which a loopback service may be
    called besides localhost (behind a proxy that passes the name on). Limits hold for one process:
    `requests_per_second` for each client's address, the others for all of them together.
    """

    model_config = SettingsConfigDict(env_prefix="KVLEDGER_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = DEFAULT_PORT
    token: SecretStr | None = None
    reveal_tokens: bool = False
    allowed_hosts: tuple[str, ...] = ()
    requests_per_second: Positive = 200
    body_bytes: Positive = 1_048_576
    query_bytes: Positive = 8_192
    streams: Positive = 32
    audits_waiting: Annotated[int, Field(ge=0)] = 4
    audits_kept: Positive = 50
    followed_journals: Positive = 8


def check_token(token: SecretStr) -> None:
    """Raise InvalidArgument, which does not say the token, for one that can be guessed or not be sent."""
    text = token.get_secret_value()
    if len(text) not in TOKEN_CHARACTERS:
        raise InvalidArgument(
            f"a token has {TOKEN_CHARACTERS.start} to {TOKEN_CHARACTERS.stop - 1} characters, "
            f"this one {len(text)}"
        )
    if not all("!" <= character <= "~" for character in text):
        raise InvalidArgument("a token is of printable ASCII characters without blanks")


def read_token(path: Path) -> SecretStr:
    """The token in a file's first line. Raises InvalidArgument where the file cannot be read."""
    try:
        with path.open("r", encoding="utf-8", errors="replace") as file:
            return SecretStr(file.readline(TOKEN_CHARACTERS.stop + 2).strip())
    except OSError as error:
        raise InvalidArgument(f"the token cannot be read: {error}") from error
