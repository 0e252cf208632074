"""Texts that Hadoop's client gave for real stores (versitygw 1.8.0, and a proxy before it), and what is made of them."""

from __future__ import annotations

import pytest

from hudi_ingest.hudi.storage.s3 import S3Storage
from hudi_ingest.hudi.storage.storage import store_advice, store_error
from hudi_ingest.model.storage_options import StorageOptions

_OF_BOTOCORE = "ClientError: An error occurred ({}) when calling the HeadObject operation: {}"
_OF_ARROW = "When uploading object with key 'x' in bucket 'lake': AWS Error {} during PutObject operation: {}"
PYTHONS = [
    ("secret key is wrong", _OF_BOTOCORE.format("SignatureDoesNotMatch", "The request signature we calculated …")),
    ("does not know the access key", _OF_BOTOCORE.format("InvalidAccessKeyId", "…")),
    ("does not know the access key", _OF_ARROW.format("INVALID_ACCESS_KEY_ID", "…")),
    ("have expired", _OF_BOTOCORE.format("ExpiredToken", "The provided token has expired.")),
    ("refused access", _OF_BOTOCORE.format("403", "Forbidden")),
    ("refused access", _OF_ARROW.format("ACCESS_DENIED", "No response body.")),
    ("bucket does not exist", _OF_BOTOCORE.format("NoSuchBucket", "The specified bucket does not exist.")),
    ("bucket does not exist", _OF_ARROW.format("NO_SUCH_BUCKET", "The specified bucket does not exist.")),
    ("in another region", _OF_BOTOCORE.format("301", "Moved Permanently")),
    ("in another region", _OF_BOTOCORE.format("PermanentRedirect", "The bucket you are attempting to access …")),
    ("clock is wrong", _OF_BOTOCORE.format("RequestTimeTooSkewed", "The difference … is too large.")),
    ("without saying why", _OF_BOTOCORE.format("400", "Bad Request")),
    ("overloaded or broken", _OF_BOTOCORE.format("SlowDown", "Please reduce your request rate.")),
    ("overloaded or broken", _OF_ARROW.format("INTERNAL_FAILURE", "")),
    ("does not answer", 'EndpointConnectionError: Could not connect to the endpoint URL: "http://127.0.0.1:9/lake/x"'),
    ("does not answer", 'ConnectTimeoutError: Connect timeout on endpoint URL: "http://10.0.0.1/lake/x"'),
    ("does not answer", 'ReadTimeoutError: Read timeout on endpoint URL: "http://10.0.0.1/lake/x"'),
    (
        "does not answer",
        "ConnectionClosedError: Connection was closed before we received a valid response from endpoint URL",
    ),
    (
        "certificate is not trusted",
        "SSLError: SSL validation failed for https://127.0.0.1:9000/lake [SSL: WRONG_VERSION_NUMBER]",
    ),
]
"""Texts of botocore and Arrow."""

TEXTS = {
    "bucket does not exist; create it": (
        "UnknownStoreException: `s3a://nobucket/x': getFileStatus on s3a://nobucket/x: AmazonS3Exception: The specified bucket "
        "does not exist. (Service: Amazon S3; Status Code: 404; Error Code: NoSuchBucket; Request ID: FHUUZ8MFBIOXY3KO)"
    ),
    "secret key is wrong": (
        "AccessDeniedException: s3a://lake/x: getFileStatus on s3a://lake/x: AmazonS3Exception: The request signature we "
        "calculated does not match the signature you provided. (Status Code: 403; Error Code: SignatureDoesNotMatch)"
    ),
    "refused access": "AmazonS3Exception: Forbidden (Service: Amazon S3; Status Code: 403; Error Code: 403 Forbidden; Proxy: null)",
    "does not know the access key": (
        "FileNotFoundException: Writing Object on x: AmazonS3Exception: No user exists with the provided access key ID. "
        "(Service: Amazon S3; Status Code: 404; Error Code: XAdminUserNotFound; Proxy: null)"
    ),
    "environment variable LAKE_KEY is not set or empty where Spark runs; set it": (
        "AccessDeniedException: s3a://lake/x: NoAuthWithAWSException: No AWS Credentials provided by HudiIngestCredentials : "
        "SdkClientException: hudi-ingest credentials: environment variable LAKE_KEY is not set or empty where Spark runs\nmore"
    ),
    "No AWS profile named 'nope' where Spark runs": (
        "SdkClientException: hudi-ingest credentials: No AWS profile named 'nope' where Spark runs"
    ),
    "no credentials were found": "SdkClientException: Unable to load AWS credentials from any provider in the chain: [Env…]",
    "in another region": (
        'AWSBadRequestException: getFileStatus on s3a://lake/x: AmazonS3Exception: The region "eu-west-1" is wrong; expecting '
        '"us-east-1" (Service: Amazon S3; Status Code: 400; Error Code: AuthorizationHeaderMalformed; Proxy: null)'
    ),
    "without saying why": "AWSBadRequestException: getFileStatus on s3a://l/x: AmazonS3Exception: Bad Request (Status Code: 400)",
    "clock is wrong": "AmazonS3Exception: The difference is too large. (Status Code: 403; Error Code: RequestTimeTooSkewed)",
    "overloaded or broken": "AWSServiceThrottledException: AmazonS3Exception: Service Unavailable (Status Code: 503; Proxy: null)",
    "does not answer": "SdkClientException: Unable to execute HTTP request: Connect to 127.0.0.1:1 failed: Connection refused",
}


@pytest.mark.parametrize(("meaning", "text"), TEXTS.items(), ids=[meaning[:24] for meaning in TEXTS])
def test_an_error_of_the_store_says_what_to_do(meaning: str, text: str) -> None:
    assert meaning in (store_advice(text) or "")


@pytest.mark.parametrize(("meaning", "text"), PYTHONS)
def test_an_error_of_pythons_clients_says_the_same(meaning: str, text: str) -> None:
    assert meaning in (store_advice(text) or "")


def test_other_errors_are_not_explained_by_the_store() -> None:
    assert store_advice("HoodieException: Unable to read the schema of s3a://lake/x") is None


def test_the_stores_own_code_and_text_are_kept_however_long_the_objects_name_is() -> None:
    key = f"shop/orders/dt=2026-01-03/{'0' * 300}.parquet"
    text = (
        f"When reading information for key '{key}' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during HeadObject "
        "operation: Unable to parse ExceptionName: BadRequest Message: An error occurred when parsing the HTTP request."
    )
    told = store_error(OSError(text), StorageOptions(), "lake")
    assert str(told) == f"AWS S3, bucket lake: OSError: {text.rstrip('.')}"
    storage = S3Storage("s3a://lake/t", StorageOptions())
    assert storage.explained(told) is told
