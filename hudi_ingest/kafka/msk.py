"""Tokens for the IAM logins of Amazon MSK: `source.security.oauth.token_function: hudi_ingest.kafka.msk:token`."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest.pipeline import extras

_KNOWN = ("region", "profile", "role_arn", "session_name")


def token(options: Mapping[str, str]) -> tuple[str, float]:
    """A token by AWS's signer, and its expiry in seconds since 1970.

    `region` is the cluster's. Credentials come from AWS's default chain, from a `profile`, or from a role to assume
    (`role_arn`, and `session_name` if it matters). Raises ValueError for other options or without the extra `msk`, and what
    the signer raises.
    """
    unknown = sorted(options.keys() - set(_KNOWN))
    if unknown or not options.get("region"):
        found = f"found {', '.join(unknown)}" if unknown else "region is missing"
        raise ValueError(f"options are region (required), profile, role_arn and session_name; {found}")
    if "profile" in options and "role_arn" in options:
        raise ValueError("set profile or role_arn, not both; a profile may assume a role itself")
    try:
        extras.require("msk")
    except ValueError as problem:
        raise ValueError(f"IAM logins of MSK {problem}") from None
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer

    region = options["region"]
    if "profile" in options:
        value, milliseconds = Signer.generate_auth_token_from_profile(region, options["profile"])
    elif "role_arn" in options:
        session = options.get("session_name", Signer.DEFAULT_STS_SESSION_NAME)
        value, milliseconds = Signer.generate_auth_token_from_role_arn(region, options["role_arn"], session)
    else:
        value, milliseconds = Signer.generate_auth_token(region)
    return str(value), milliseconds / 1000
