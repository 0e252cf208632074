"""A certificate authority of a test's own, and certificates for this machine that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, and keeps all of its files in one folder. `certificate` is what clients trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(self._name, self._key.public_key(), expired=False)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *, expired: bool = False) -> Identity:
        """A certificate for 127.0.0.1 and localhost; an expired one ended yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = self._builder(subject, key.public_key(), expired=expired)
        made = made.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        found = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        found.certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return found

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + (-DAY if expired else DAY))
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
