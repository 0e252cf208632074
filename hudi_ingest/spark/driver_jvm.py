"""Starts a Spark driver's JVM, with settings that no process list shows, in an environment that the machine does not decide, and
spares it needless work."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from multiprocessing.util import Finalize
from pathlib import Path
from pwd import getpwuid
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyspark
from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import JavaClass
from py4j.protocol import MEMORY_COMMAND_NAME, MEMORY_DEL_SUBCOMMAND_NAME, Py4JJavaError
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from hudi_ingest.exceptions import EnvironmentProblem

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
JVM_LOCALE = "C.UTF-8"
"""LC_ALL of our JVMs: Java encodes the names of files by it, and no option of a JVM changes that."""
JVM_OPTIONS = "-Duser.timezone=UTC -Dfile.encoding=UTF-8 -Duser.language=en -Duser.country=US"
"""Hudi and Spark write numbers and change the case of names by a JVM's default language and charset."""
_OTHER_CASES = {"tr", "az", "lt"}
"""Languages in which Java lowers `I` or raises `i` in their own way."""
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def start_jvm(options: Mapping[str, str], folder: Path | None, output: IO[bytes] | int) -> None:
    """Start this process's JVM with Spark's settings, unless it has one. Raises pyspark's and py4j's errors, OSError.

    `output`: the file or descriptor for all that the JVM and the workers that it starts print.

    pyspark would put them on the command line, which every user of the machine can see. Here they are in a file that only this
    user can read, in `folder` or else where temporary files are, until the JVM has read it. JVM options and class paths are
    on the command line even so.
    """
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="settings-", dir=folder) as private:
        file = Path(private, "spark.properties")
        file.write_text(_defaults() + properties_text(options), encoding="utf-8")
        arguments = f"--properties-file {shlex.quote(str(file))} {os.environ.get(_ARGUMENTS) or 'pyspark-shell'}"
        with _environment({_ARGUMENTS: arguments, "LC_ALL": JVM_LOCALE}):
            # Returns once the JVM has reported its port, which it does after it has read the file.
            started = SparkContext._gateway or launch_gateway(popen_kwargs={"stdout": output, "stderr": output})
            SparkContext._ensure_initialized(gateway=started)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def require_usable_account() -> None:
    """Raises EnvironmentProblem when this process cannot start a driver or would name files otherwise than its JVM: a user
    id without a name, which Hadoop's login refuses, or a locale in which Python does not write names as UTF-8."""
    user = os.geteuid()
    try:
        getpwuid(user)
    except KeyError:
        raise EnvironmentProblem(
            f"user id {user} has no name on this machine, and Spark's driver cannot start without one. Add a line for it to "
            f"/etc/passwd (`hudi:x:{user}:0::/tmp:/bin/sh`), or let nss_wrapper or your platform supply it."
        ) from None
    charset = sys.getfilesystemencoding()
    if charset != "utf-8":
        raise EnvironmentProblem(
            f"Python encodes the names of files as {charset} here, but all writers and readers of a table must use UTF-8. "
            "Set LC_ALL to a UTF-8 locale that `locale -a` lists, such as C.UTF-8, or set PYTHONUTF8=1."
        )


def require_own_spark() -> None:
    """Raises EnvironmentProblem when SPARK_HOME names another Spark than the one that was installed with hudi-ingest."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    found = sorted(Path(home, "jars").glob("spark-core_*.jar"))
    version = found[0].stem.rpartition("-")[2] if found else "none"
    if version != pyspark.__version__:
        raise EnvironmentProblem(
            f"SPARK_HOME is {home}, whose Spark is {version}, and hudi-ingest needs the Spark {pyspark.__version__} that was installed with "
            "it. Unset SPARK_HOME for hudi-ingest's processes."
        )


def inherited_arguments() -> str:
    """Say that PYSPARK_SUBMIT_ARGS is set, as notebooks do, if it is; it goes to the JVM beside our own settings."""
    inherited = os.environ.get(_ARGUMENTS)
    return f"{_ARGUMENTS} is set here ({inherited}) and may be why: unset it. " if inherited else ""


def require_usable_jvm(jvm: Any) -> None:
    """Raises EnvironmentProblem when a driver, such as one that another program started, names files or writes numbers
    otherwise than other programs read them."""
    charset = jvm.java.lang.System.getProperty("sun.jnu.encoding")
    if charset != "UTF-8":
        raise EnvironmentProblem(
            f"Spark's JVM encodes the names of files as {charset}, so it would not find files of partitions such as `Zürich`, and "
            f"would leave them behind. Start its process with LC_ALL={JVM_LOCALE}, or with another UTF-8 locale that `locale -a` lists."
        )
    locale = jvm.java.util.Locale.getDefault()
    one = jvm.java.text.NumberFormat.getIntegerInstance().format(1)
    if one != "1" or locale.getLanguage() in _OTHER_CASES:
        raise EnvironmentProblem(
            f"Spark's JVM has the default language {locale.toLanguageTag()}, in which Hudi cannot read its own names and numbers. "
            "Start it with -Duser.language=en -Duser.country=US, and remove other languages from _JAVA_OPTIONS, which overrides these."
        )


def properties_text(options: Mapping[str, str]) -> str:
    """Write settings as a Java properties file."""
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value, '')}\n" for key, value in options.items())


def _escaped(text: str, special: str) -> str:
    escaped = "".join(_ESCAPES.get(letter) or ("\\" + letter if letter in special else letter) for letter in text)
    # Java skips spaces before a value.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _defaults() -> str:
    """The installation's own spark-defaults.conf, which Spark does not read beside another file."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        return f"{Path(folder, 'spark-defaults.conf').read_text(encoding='utf-8')}\n"
    except FileNotFoundError:
        return ""


_logger = logging.getLogger(__name__)


def shorten_settings(jvm: Any, context: Any) -> None:
    """Take what nobody reads from Hadoop's settings: those of YARN that are as by default, unless it runs the driver, and which file
    each other default comes from. `context` is the JavaSparkContext.

    Hadoop copies all its thousand settings many times in a transaction, and writes the file's name with each default, compressed
    one by one, up to three times a Spark job. Where it fails (another Hadoop), transactions are slower but as correct. Raises py4j's
    errors when the JVM is gone.
    """
    try:
        configuration = jvm.org.apache.hadoop.conf.Configuration
        of_class = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField
        sources, values = of_class("updatingResource"), of_class("properties")
        for hidden in (sources, values):
            hidden.setAccessible(True)
        settings, defaults, of_yarn = context.hadoopConfiguration(), configuration(), configuration(False)
        of_yarn.addResource("yarn-default.xml")
        for loaded in (settings, defaults, of_yarn):
            # They are read from the files on first use.
            loaded.size()
        sources.get(settings).keySet().removeAll(sources.get(defaults).keySet())
        if not context.master().startswith("yarn"):
            values.get(settings).entrySet().removeAll(values.get(of_yarn).entrySet())
    except Py4JJavaError as error:
        _logger.warning(
            "begin and commit take a tenth of a second longer: Hadoop's settings cannot be made smaller (%s).",
            error.java_exception.toString(),
        )


_CLASS = "HudiIngestLocalFiles"


def use_system_calls(jvm: Any, context: Any) -> None:
    """Let Hadoop list local files and set their permissions by system calls. `context` is the JavaSparkContext.

    It reaches into Hadoop, so where that fails (another Java, another Hadoop, another file system for `file://`), Hadoop does it
    in its own way, which is slower but as correct. Raises py4j's errors when the JVM is gone.
    """
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(resources.files("hudi_ingest.spark").joinpath(f"{_CLASS}.java").read_text())
        local_files = compiler.getClassLoader().loadClass(_CLASS).getConstructor(None).newInstance(None)
        # Not called directly: py4j cannot reach a class of another loader.
        jvm.java.util.Optional.of(context.hadoopConfiguration()).ifPresent(local_files)
    except Py4JJavaError as error:
        _logger.warning(
            "begin and commit take some tenths of a second longer for tables on a local disk: Hadoop starts a process for each "
            "file that it lists or creates, because replacing that by system calls failed (%s).",
            error.java_exception.toString(),
        )


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


_PYSPARKS = {
    "org.apache.spark.api.python.": ("PythonAccumulatorV2", "PythonRDD", "PythonUtils", "SimplePythonFunction"),
    "org.apache.spark.sql.": ("SparkSession", "SparkSession$"),
}
"""Java classes that pyspark names without their package when it attaches to a driver and runs a job of ours."""


def name_packages(gateway: Any) -> None:
    """Have pyspark's own names of packages and classes resolved as those of JavaPackage are. Names that are not known here are still
    asked for."""
    client = gateway._gateway_client
    known = {name: JavaClass(f"{package}{name}", client) for package, names in _PYSPARKS.items() for name in names}
    vars(gateway.jvm).update(known, **{root: JavaPackage(gateway, root) for root in ("java", "org", "scala")})


_RELEASE_SECONDS = 5.0
_OBJECT = "o"
"""How py4j's ids of objects begin that a call returned."""


def release_at_exit(gateway: Any) -> None:
    """Let the driver drop this process's objects when the process ends, also one of multiprocessing's. `gateway`: as it was attached.

    A driver keeps what it has returned to a process until py4j says that nobody there refers to it, which a thread of py4j's does once a
    second: a run that is over before would leave its objects, a megabyte or so, in the driver for good.
    """
    Finalize(None, _release, args=(gateway,), exitpriority=0)


def _release(gateway: Any) -> None:
    client, parameters = gateway._gateway_client, gateway.gateway_parameters
    # Ids are of one driver; the process may know those of a former one, too.
    with ThreadSafeFinalizer.lock:
        known = [reference() for reference in ThreadSafeFinalizer.finalizers.values()]
    ids = [each._target_id for each in known if each is not None and each._gateway_client is client]
    ids += [entry[1] for entry in [*client.finalizer_deque] if isinstance(entry, tuple) and entry[0] is client]
    commands = [
        f"{MEMORY_COMMAND_NAME}{MEMORY_DEL_SUBCOMMAND_NAME}{each}\ne\n" for each in ids if each.startswith(_OBJECT)
    ]
    # Without an answer the driver is gone, or hangs, and will be started anew.
    with suppress(OSError):
        answers_of((parameters.address, parameters.port), parameters.auth_token, commands, _RELEASE_SECONDS)


def answers_of(address: tuple[str, int], secret: str, commands: Sequence[str], seconds: float) -> list[bytes]:
    """Send a driver py4j's greeting and these commands on a connection of their own, and return its answers, that to the greeting first,
    shorter or empty if it ends the connection. Raises OSError, also if an answer takes longer than these seconds, which py4j's own
    connections would wait for without end."""
    with socket.create_connection(address, seconds) as connection, connection.makefile("rb") as answers:
        connection.sendall(f"A\n{secret}\n{''.join(commands)}".encode())
        return [answers.readline() for _ in range(1 + len(commands))]
