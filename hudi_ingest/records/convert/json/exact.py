"""One JSON record at a time, judged by the declared schema: slow, exact, and able to name what is wrong.

What is accepted (RFC 8259 text in UTF-8, no byte order mark, one object per record):

| type | JSON |
|---|---|
| bool | `true`, `false` |
| int8 … int64 | an integer number in range; `1.0` and `1e2` are not integers (nor are they for Spark) |
| float32, float64 | any number that stays finite; the nearest float, which is 0 for too small ones |
| string | a string without lone surrogates |
| decimal | a number, or a string holding one, that fits precision and scale without rounding |
| date32 | "YYYY-MM-DD", years 0001 to 9999 |
| timestamp[us], with zone UTC or none | "YYYY-MM-DD[( or T)hh[:mm[:ss[.f…]]][Z or ±hh[[:]mm]]]", after 6 digits of a second only zeros; no zone means UTC |
| binary | base64 text with padding |
| struct | an object; an absent field is null |
| list | an array |
| map<string, V> | an object |

A declared field given twice is refused. What is not declared is ignored as long as it is JSON. Ignored parts may hold
repeated keys, NaN, Infinity (or Inf) and any depth.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

import pyarrow as pa

from hudi_ingest.records.convert.converter import ABSENT, Bare, Mismatch, read_items, shortened, shown
from hudi_ingest.records.times import EPOCH_ORDINAL, FIRST_DAY, FIRST_MICROSECOND, LAST_MICROSECOND

Reader = Callable[[Any], Any]
"""Parsed JSON -> what `pyarrow.array` takes for the type. Raises Mismatch."""


class _Integer(Bare):
    """The text of a JSON number without fraction and exponent: kept as text, so no size limit and no rounding applies."""

    __slots__ = ()


class _Real(Bare):
    """The text of a JSON number with fraction or exponent."""

    __slots__ = ()


class _NotFinite(Bare):
    """NaN, Infinity and their like: no JSON, wrong for every declared type."""

    __slots__ = ()


class _Repeating(dict[str, Any]):
    """An object with keys given more than once. Only a reader knows whether such a key is declared."""

    repeated: frozenset[str]


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    repeated: set[str] = set()
    for key, _ in pairs:
        (repeated if key in seen else seen).add(key)
    repeating = _Repeating(members)
    repeating.repeated = frozenset(repeated)
    return repeating


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_Integer, parse_float=_Real, parse_constant=_NotFinite, strict=True
)
_NOT_FINITE = re.compile(r"-?(?:NaN|Inf(?:inity)?)")
_WHITESPACE = re.compile(r"[ \t\n\r]*")


_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")


def token_of(text: str) -> object:
    """Read a text from outside of JSON: a number as JSON writes it, true, false, or a text. A + and zeros in front
    do not change a number, nor a point without digits on one side."""
    if text in ("true", "false"):
        return text == "true"
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    sign, whole, fraction, alone, exponent = match.groups("")
    fraction = fraction or alone
    number = f"{sign.strip('+')}{whole.lstrip('0') or '0'}{fraction.rstrip('.')}{exponent}"
    return _Real(number) if fraction or exponent else _Integer(number)


def value_reader(field: pa.Field) -> Reader:
    """The reader of one column's values. Raises ValueError when its type is not supported."""
    return _field_reader(field, f".{field.name}", {})


class RecordReader:
    """Reads records of one schema. `float_texts`: texts that stand for floats. Raises ValueError at construction when a type in the
    schema is not supported."""

    def __init__(self, schema: pa.Schema, float_texts: Mapping[str, float] | None = None) -> None:
        self._names = frozenset(schema.names)
        self._read_object = _struct_reader(list(schema), "", float_texts or {})

    def read(self, record: bytes) -> dict[str, Any]:
        """Field name -> value as `pyarrow.array` takes it, for every declared field. Raises Mismatch, nothing else."""
        try:
            text = record.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Mismatch("a JSON object", f"bytes that are not UTF-8, at byte {error.start}") from None
        try:
            value = _parse(text)
        except json.JSONDecodeError as error:
            raise Mismatch("a JSON object", _no_json(text, error)) from None
        if not isinstance(value, dict):
            raise Mismatch("a JSON object", shown(value))
        if self._names.isdisjoint(value):
            _refuse_envelopes(value)
        row: dict[str, Any] = self._read_object(value)
        return row


def _refuse_envelopes(record: dict[str, Any]) -> None:
    """Raise Mismatch for a record whose fields, which no column takes, are an envelope's: its row would be nulls."""
    framed = record.keys() == {"schema", "payload"}
    event = record["payload"] if framed else record
    if isinstance(event, dict) and {"op", "source"} <= event.keys() and not {"before", "after"}.isdisjoint(event):
        raise Mismatch(
            "a field for a column; Debezium's events need `source.envelope: debezium`", "an event of Debezium"
        )
    if framed:
        raise Mismatch(
            "a field for a column; Kafka Connect's records with schemas need `source.envelope: connect`",
            "only a schema and a payload",
        )


def _no_json(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip(" \t\n\r"):
        return "an empty value" if not text else "only white space"
    if text.startswith("\ufeff"):
        return "a byte order mark before the JSON text"
    return shortened(f"no JSON: {error.msg}, at character {error.pos}")


def _parse(text: str) -> Any:
    """Raises JSONDecodeError when the text is not one JSON value; neither depth nor the size of a number is limited."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        # How deep the standard decoder gets depends on the caller's stack, and the outcome for a record must not.
        return _parse_without_recursion(text)
    except json.JSONDecodeError:
        if "Inf" in text or "-NaN" in text:
            # Ignored fields may hold these tokens, which the standard decoder does not know.
            return _parse_without_recursion(text)
        raise


def _parse_without_recursion(text: str) -> Any:
    """The value that `_DECODER` gives, with the open containers on a list instead of the stack."""
    containers: list[list[Any]] = []
    keys: list[str | None] = []
    """The key that waits for its value, per open container; None for arrays."""

    def fail(message: str, at: int) -> NoReturn:
        raise json.JSONDecodeError(message, text, at)

    def after_space(at: int) -> int:
        match = _WHITESPACE.match(text, at)
        return match.end() if match else at

    def key_at(at: int) -> tuple[str, int]:
        if text[at : at + 1] != '"':
            fail("Expecting property name enclosed in double quotes", at)
        key, end = _DECODER.raw_decode(text, at)
        end = after_space(end)
        if text[end : end + 1] != ":":
            fail("Expecting ':' delimiter", end)
        return key, end + 1

    at = 0
    while True:
        at = after_space(at)
        value: Any
        opening = text[at : at + 1]
        closed = False
        if opening in ("{", "["):
            containers.append([])
            keys.append(None)
            at = after_space(at + 1)
            closed = text[at : at + 1] == ("}" if opening == "{" else "]")
            if not closed:
                if opening == "{":
                    keys[-1], at = key_at(at)
                continue
            value = _object(()) if opening == "{" else []
            containers.pop()
            keys.pop()
            at += 1
        elif special := _NOT_FINITE.match(text, at):
            value, at = _NotFinite(special.group()), special.end()
        else:
            value, at = _DECODER.raw_decode(text, at)
        while True:
            at = after_space(at)
            if not containers:
                if at != len(text):
                    fail("Extra data", at)
                return value
            key = keys[-1]
            containers[-1].append(value if key is None else (key, value))
            following = text[at : at + 1]
            if following == ",":
                at += 1
                if key is not None:
                    keys[-1], at = key_at(after_space(at))
                break
            if following != ("]" if key is None else "}"):
                fail("Expecting ',' delimiter", at)
            members = containers.pop()
            keys.pop()
            value = members if key is None else _object(members)
            at += 1


def _field_reader(field: pa.Field, path: str, texts: Mapping[str, float]) -> Reader:
    read, expected = _value_reader(field.type, path, texts)
    if field.nullable:
        return lambda value: None if value is None else read(value)

    def read_required(value: Any) -> Any:
        if value is None:
            raise Mismatch(f"{expected}, not null", "null")
        return read(value)

    return read_required


def _struct_reader(fields: Sequence[pa.Field], path: str, texts: Mapping[str, float]) -> Reader:
    if not fields:
        raise ValueError(f"{_named(path)}: at least one field must be declared")
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{_named(path)}: declared more than once: {', '.join(twice)}")
    members = [(field.name, _field_reader(field, f"{path}.{field.name}", texts)) for field in fields]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Mismatch("an object", shown(value))
        if isinstance(value, _Repeating):
            for name in names:
                if name in value.repeated:
                    twice = Mismatch("the field once", "the field more than once")
                    twice.under("." + shortened(name))
                    raise twice
        row = {}
        name = ""
        try:
            for name, read_member in members:
                row[name] = read_member(value.get(name))
        except Mismatch as mismatch:
            if mismatch.at_the_value_itself and name not in value:
                mismatch.found = ABSENT
            mismatch.under("." + name)
            raise
        return row

    return read


def _list_reader(item: pa.Field, path: str, texts: Mapping[str, float]) -> Reader:
    read_item = _field_reader(item, f"{path}[]", texts)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Mismatch("an array", shown(value))
        return read_items(value, read_item)

    return read


def _map_reader(item: pa.Field, path: str, texts: Mapping[str, float]) -> Reader:
    read_item = _field_reader(item, f"{path}[]", texts)

    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise Mismatch("an object", shown(value))
        if isinstance(value, _Repeating):
            raise Mismatch("each key once", f"a key more than once: {shortened(min(value.repeated), 40)}")
        entries = []
        key = ""
        try:
            for key, element in value.items():
                _refuse_lone_surrogates(key)
                entries.append((key, read_item(element)))
        except Mismatch as mismatch:
            mismatch.under("[" + shortened(json.dumps(key[:40], ensure_ascii=False), 40) + "]")
            raise
        return entries

    return read


def _value_reader(type_: pa.DataType, path: str, texts: Mapping[str, float]) -> tuple[Reader, str]:
    """The reader of non-null values, and what it expects in words. Raises ValueError for types that are not supported."""
    if pa.types.is_boolean(type_):
        return _read_bool, "true or false"
    if pa.types.is_signed_integer(type_):
        return _integer_reader(type_.bit_width), f"int ({type_.bit_width} bit)"
    if pa.types.is_float64(type_) or pa.types.is_float32(type_):
        return _float_reader(type_.bit_width, texts), f"float ({type_.bit_width} bit)"
    if pa.types.is_string(type_):
        return _read_string, "string"
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        expected = f"decimal({type_.precision},{type_.scale})"
        return _decimal_reader(type_.precision, type_.scale, expected), expected
    if pa.types.is_date32(type_):
        return _read_date, _DATE_EXPECTED
    if pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        return _read_timestamp, _TIMESTAMP_EXPECTED
    if pa.types.is_binary(type_):
        return _read_binary, _BINARY_EXPECTED
    if pa.types.is_struct(type_):
        return _struct_reader([type_.field(i) for i in range(type_.num_fields)], path, texts), "an object"
    if pa.types.is_list(type_):
        return _list_reader(type_.value_field, path, texts), "an array"
    if pa.types.is_map(type_):
        if not pa.types.is_string(type_.key_type):
            raise ValueError(
                f"{_named(path)}: the keys of a JSON object are strings, so {type_} cannot be read from JSON"
            )
        return _map_reader(type_.item_field, path, texts), "an object"
    raise ValueError(
        f"{_named(path)}: {type_} cannot be read from JSON; known are bool, int8 to int64, float32, float64, string, "
        "decimal128, date32, timestamp[us] (zone UTC or none), binary, struct, list and map with string keys"
    )


def _named(path: str) -> str:
    return f"field {path.removeprefix('.')}" if path else "the schema"


def _read_bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Mismatch("true or false", shown(value))


def _integer_reader(bits: int) -> Reader:
    expected = f"int ({bits} bit)"
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: Any) -> int:
        # JSON has no leading zeros, so more than 20 characters are out of range; `int` would be slow on a million.
        if type(value) is _Integer and len(value) <= 20:
            number = int(value)
            if lowest <= number <= highest:
                return number
        raise Mismatch(expected, shown(value))

    return read


def _float_reader(bits: int, texts: Mapping[str, float]) -> Reader:
    def read(value: Any) -> float:
        if isinstance(value, (_Integer, _Real)):
            # 32 bits straight from the text: by way of a 64-bit float it would be rounded twice, to a neighbour in rare cases.
            number = float(value if bits == 64 else pa.scalar(str(value)).cast(pa.float32()).as_py())
            if isfinite(number):
                return number
        elif type(value) is str and value in texts:
            return texts[value]
        raise Mismatch(f"float ({bits} bit)", shown(value))

    return read


def _refuse_lone_surrogates(value: str) -> None:
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            found = shortened(f"half of a surrogate pair in {shown(value)}")
            raise Mismatch("string of Unicode characters", found) from None


def _read_string(value: Any) -> str:
    if type(value) is not str:
        raise Mismatch("string", shown(value))
    _refuse_lone_surrogates(value)
    return value


_DECIMAL = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?)([0-9]+))?")


def _decimal_reader(precision: int, scale: int, expected: str) -> Reader:
    def read(value: Any) -> Decimal:
        match = _DECIMAL.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise Mismatch(expected, shown(value))
        sign, whole, fraction, exponent_sign, exponent = match.groups()
        digits = (whole + (fraction or "")).lstrip("0")
        significant = digits.rstrip("0")
        if not significant:
            return Decimal((0, (0,), -scale))
        power = (exponent or "").lstrip("0") or "0"
        if len(power) > 9 or len(significant) > precision:
            # Ten digits of exponent would need a gigabyte of other digits to come back into 38.
            raise Mismatch(expected, shown(value))
        shift = int(exponent_sign + power if exponent_sign else power)
        shift += scale - len(fraction or "") + len(digits) - len(significant)
        if shift < 0 or len(significant) + shift > precision:
            raise Mismatch(expected, shown(value))
        # From text: the constructor keeps every digit, arithmetic would round to the context's 28.
        return Decimal(f"{sign}{significant}{'0' * shift}E-{scale}")

    return read


_DATE_EXPECTED = "date as YYYY-MM-DD"
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_DAYS_OF_400_YEARS = 146_097


def _days(year: str, month: str, day: str) -> int:
    """Days since 1970, of year 0000 too: at its end a zone may lead into year 0001. Raises ValueError for no date."""
    if year == "0000":
        return date(400, int(month), int(day)).toordinal() - EPOCH_ORDINAL - _DAYS_OF_400_YEARS
    return date(int(year), int(month), int(day)).toordinal() - EPOCH_ORDINAL


def _read_date(value: Any) -> int:
    match = _DATE.fullmatch(value) if type(value) is str else None
    if match:
        try:
            days = _days(*match.groups())
        except ValueError:
            days = FIRST_DAY - 1
        if days >= FIRST_DAY:
            return days
    raise Mismatch(_DATE_EXPECTED, shown(value))


_TIMESTAMP_EXPECTED = "timestamp as ISO 8601, to the microsecond"
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[ T]([01][0-9]|2[0-3])(?::([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6})0*)?)?)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?)?"
)


def _read_timestamp(value: Any) -> int:
    """Microseconds since 1970 in UTC."""
    match = _TIMESTAMP.fullmatch(value) if type(value) is str else None
    if match:
        year, month, day, hour, minute, second, fraction, sign, zone_hour, zone_minute = match.groups()
        try:
            days = _days(year, month, day)
        except ValueError:
            raise Mismatch(_TIMESTAMP_EXPECTED, shown(value)) from None
        minutes = (days * 24 + int(hour or 0)) * 60 + int(minute or 0)
        if sign:
            ahead = int(zone_hour) * 60 + int(zone_minute or 0)
            minutes += ahead if sign == "-" else -ahead
        microseconds = (minutes * 60 + int(second or 0)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
        if FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND:
            return microseconds
    raise Mismatch(_TIMESTAMP_EXPECTED, shown(value))


_BINARY_EXPECTED = "binary as base64 text"


def bytes_of(text: str) -> bytes:
    """Base64 text -> bytes. Raises ValueError for anything else, white space and missing or surplus padding included."""
    # Whether Python itself refuses surplus padding depends on its version.
    if len(text) % 4 or text.endswith("==="):
        raise ValueError("padding is missing or surplus")
    return base64.b64decode(text, validate=True)


def _read_binary(value: Any) -> bytes:
    if type(value) is str:
        try:
            return bytes_of(value)
        except ValueError:
            pass
    raise Mismatch(_BINARY_EXPECTED, shown(value))
