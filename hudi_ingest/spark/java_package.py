"""Names of Java packages and classes that cost no call to the JVM."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass


class JavaPackage:
    """A Java package, "" for the root. An attribute that begins with an upper-case letter is a class, any other a package.

    py4j asks the JVM what each part of a name is, and the JVM then looks for a class of that name in all jars: a tenth of what
    its threads did in a small transaction.
    """

    def __init__(self, gateway: Any, name: str = "") -> None:
        self._gateway = gateway
        self._name = name

    def __getattr__(self, name: str) -> Any:
        full = f"{self._name}.{name}".lstrip(".")
        if name[:1].isupper():
            return JavaClass(full, self._gateway._gateway_client)
        return JavaPackage(self._gateway, full)
