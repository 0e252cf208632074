"""What an S3 store's errors mean, and what to do about them."""

from __future__ import annotations

import re
from typing import Any

from hudi_ingest.model.storage_options import StorageOptions

_ARROW = re.compile(r"AWS Error (?P<code>[A-Z_]+)|HTTP status (?P<status>\d+)|(?P<name>[A-Z][A-Za-z]+) \(HTTP")
_LOGIN = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "TokenRefreshRequired",
    "AuthFailure",
    "UnrecognizedClientException",
}
_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"}
_BUSY = {
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "ThrottlingException",
    "500",
    "502",
    "503",
}


class StoreError(OSError):
    """A store refused or did not answer. Its text says what happened; `remedy` is a sentence that says what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return (StoreError, (str(self), self.remedy))


def store_error(error: Exception, options: StorageOptions, bucket: str) -> StoreError:
    """Explain an error of botocore's or pyarrow's S3 client. Never shows a secret."""
    code, message = _code_and_message(error)
    store = options.endpoint or "AWS S3"
    what = f"{store} refused a request for bucket {bucket} ({code}{f': {message}' if message else ''})"
    login = _login(options)
    if code in _LOGIN:
        return StoreError(what, f"Correct {login}: the store does not accept it, or it has expired.")
    if code in ("AccessDenied", "AllAccessDisabled", "403", "ACCESS_DENIED"):
        return StoreError(
            what,
            f"Correct {login}, or let that login get, put, list and delete objects below the table's path, and list and abort "
            "its multipart uploads.",
        )
    if code == "NoSuchBucket":
        return StoreError(what, "Create the bucket, or correct table.base_path or table.storage.endpoint.")
    if code in _REGION:
        region = _region_of(error)
        return StoreError(
            what,
            f"Set table.storage.region to the bucket's region{f', {region}' if region else ''}: requests went elsewhere.",
        )
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return StoreError(what, "Correct the clock of this machine (NTP): the store refuses requests of another time.")
    if code in _BUSY:
        return StoreError(f"{store} is overloaded or failing ({code})", "Wait, and the step is tried again.")
    if code in _OWN_WORDS:
        problem, remedy = _OWN_WORDS[code]
        return StoreError(f"{store} {problem}", remedy.format(login=login))
    return StoreError(what, "Check table.storage and the store's own log.")


_UNREACHABLE = "Check table.storage.endpoint, that the store runs, and the network; the step is tried again."
_OWN_WORDS = {
    "EndpointConnectionError": ("cannot be reached", _UNREACHABLE),
    "ConnectTimeoutError": ("cannot be reached: nothing answered in time", _UNREACHABLE),
    "ReadTimeoutError": ("did not answer a request in time", _UNREACHABLE),
    "ConnectionClosedError": ("closed the connection before it answered", _UNREACHABLE),
    "ConnectionError": ("cannot be reached", _UNREACHABLE),
    "NETWORK_CONNECTION": ("cannot be reached", _UNREACHABLE),
    "ProxyConnectionError": ("cannot be reached through the proxy", "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."),
    "SSLError": (
        "has a TLS certificate that is not trusted here, or speaks no TLS",
        "Correct table.storage.endpoint (http:// or https://), or name its authority in AWS_CA_BUNDLE.",
    ),
}
"""By the name of botocore's exception, or of pyarrow's error: what the store did, and the remedy."""


def _code_and_message(error: Exception) -> tuple[str, str]:
    response: dict[str, Any] | None = getattr(error, "response", None)
    if response:
        details = response.get("Error", {})
        # A login's id is not secret, but the string to sign may be shown with it.
        return str(details.get("Code", "")), str(details.get("Message", "")).splitlines()[0:1][0] if details.get(
            "Message"
        ) else ""
    match = _ARROW.search(str(error))
    if match is not None and isinstance(error, OSError):
        code = next(filter(None, match.groups()))
        return _ARROW_CODES.get(code, code), ""
    for kind in type(error).__mro__:
        if kind.__name__ in _OWN_WORDS:
            return kind.__name__, ""
    return type(error).__name__, " ".join(str(error).split())[:200]


_ARROW_CODES = {
    "ACCESS_DENIED": "AccessDenied",
    "INVALID_ACCESS_KEY_ID": "InvalidAccessKeyId",
    "INVALID_SIGNATURE": "SignatureDoesNotMatch",
    "SIGNATURE_DOES_NOT_MATCH": "SignatureDoesNotMatch",
    "EXPIRED_TOKEN": "ExpiredToken",
    "UNRECOGNIZED_CLIENT": "InvalidAccessKeyId",
    "NO_SUCH_BUCKET": "NoSuchBucket",
    "NO_SUCH_UPLOAD": "NoSuchUpload",
    "REQUEST_TIME_TOO_SKEWED": "RequestTimeTooSkewed",
    "REQUEST_EXPIRED": "RequestExpired",
    "SLOW_DOWN": "SlowDown",
    "SERVICE_UNAVAILABLE": "ServiceUnavailable",
    "INTERNAL_FAILURE": "InternalError",
    "REQUEST_TIMEOUT": "RequestTimeout",
}


def _region_of(error: Exception) -> str:
    response: dict[str, Any] = getattr(error, "response", None) or {}
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region") or "")


def _login(options: StorageOptions) -> str:
    if options.access_key is not None:
        return f"table.storage.access_key and secret_key ({options.access_key})"
    if options.profile is not None:
        return f"profile {options.profile} of the AWS configuration files"
    return "the credentials in the environment, the default profile or the machine's role"
