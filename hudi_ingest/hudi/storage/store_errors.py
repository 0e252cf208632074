"""Say what is wrong with an S3 store and what to do, from the errors of its four clients: Hadoop, botocore, Arrow and hudi-rs."""

from __future__ import annotations

import re
from typing import Any

from hudi_ingest.model.storage_options import StorageOptions

WHO_RETRIES = "a run retries the step, and a command must be given again"
"""What follows a fault that may pass: the same message reaches runs and people at a terminal."""

_CAUSES: tuple[tuple[str, str], ...] = (
    (r"hudi-ingest credentials: ([^\n]*? where Spark runs)", r"\1; set it for the engine (and a cluster's executors)"),
    (
        r"SignatureDoesNotMatch|INVALID_SIGNATURE|signature we calculated does not match",
        "the store says that the secret key is wrong; correct table.storage.secret_key, or the process's own credentials",
    ),
    (
        r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|XAdminUserNotFound|access key ID you provided does not exist",
        "the store does not know the access key; correct table.storage.access_key, or the process's own credentials",
    ),
    (
        r"ExpiredToken|EXPIRED_TOKEN|InvalidToken|TokenRefreshRequired",
        "the temporary credentials have expired or their session token is wrong; renew them",
    ),
    (
        r"RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED|RequestExpired",
        "the store refuses requests because this machine's clock is wrong; set the clock",
    ),
    (
        r"NoSuchBucket|NO_SUCH_BUCKET|[Bb]ucket does not exist|UnknownStoreException",
        "the bucket does not exist; create it, or correct table.base_path or table.storage.endpoint",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|\(301\)|Status Code: 30[17]|"
        r"HTTP (?:code|status) 301",
        "the bucket is in another region; set table.storage.region to the bucket's",
    ),
    (
        r"NoAuthWithAWSException|No AWS Credentials|Unable to load (?:AWS )?credentials",
        "no credentials were found; set table.storage.access_key and secret_key or a profile, or give the process AWS's "
        "environment variables or a role",
    ),
    (
        r"AccessDenied|ACCESS_DENIED|Status Code: 403|Forbidden",
        "the store refused access; correct the credentials, or allow them to list the bucket and to read, write and delete the "
        "table's objects and abort their uploads",
    ),
    (
        r"SlowDown|SLOW_DOWN|Throttl|ServiceUnavailable|SERVICE_UNAVAILABLE|InternalError|INTERNAL_FAILURE|RequestTimeout|\(50[023]\)|"
        r"Status Code: 50[023]|Service Unavailable",
        f"the store is overloaded or broken at the moment (every try was answered with 5xx); {WHO_RETRIES}",
    ),
    (
        r"Status Code: 400|\(400\)|AWSBadRequestException",
        "the store refused a request without saying why, as some do for a wrong region or a wrong clock; check "
        "table.storage.region and this machine's clock",
    ),
    (
        r"SSLError|SSL validation|certificate",
        "the store's certificate is not trusted here, or it does not speak TLS; correct http:// or https:// in "
        "table.storage.endpoint, or set AWS_CA_BUNDLE to the file of the certificate's authority",
    ),
    (
        r"Connection refused|Could not connect|ConnectionClosed|Connection was closed|[Tt]imeout on endpoint|UnknownHost|"
        r"timed out|Unable to execute HTTP request|curlCode|NETWORK_CONNECTION",
        f"the store does not answer; start it, or correct table.storage.endpoint; {WHO_RETRIES}",
    ),
)
"""Pattern and explanation, the most specific first, because a text may match several."""

_MOST_TEXT = 1000
"""Characters of an error's text. pyarrow names the object twice before it comes to the store's code."""


class StoreError(OSError):
    """A store refused or did not answer. Its text says what happened; `remedy` is a sentence that says what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return (StoreError, (str(self), self.remedy))


def store_advice(text: str) -> str | None:
    """Say what the S3 store's error means and what to do; None for an error of another kind."""
    for pattern, explanation in _CAUSES:
        match = re.search(pattern, text)
        if match is not None:
            return match.expand(explanation)
    return None


def store_remedy(text: str) -> str | None:
    """As `store_advice`, as a sentence."""
    advice = store_advice(text)
    return f"{advice[0].upper()}{advice[1:]}." if advice else None


def store_error(error: Exception, options: StorageOptions, bucket: str) -> StoreError:
    """Explain an error of botocore's or pyarrow's S3 client."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    details = response.get("Error", {})
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = details.get("Region") or headers.get("x-amz-bucket-region")
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:_MOST_TEXT].rstrip('.')}"
    of_bucket = f" (the bucket is in {region})" if region and region != options.region else ""
    return StoreError(
        f"{options.endpoint or 'AWS S3'}, bucket {bucket}: {text}{of_bucket}",
        store_remedy(text) or "The store gave no known reason; check table.storage and the store's own log.",
    )
