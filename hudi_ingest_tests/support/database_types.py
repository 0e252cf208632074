"""The types of databases that Debezium sends, values of each, and the settings of its connectors that change them.

`record_types.py` records what a real connector sends of them. Rows are numbered from 1; a type with fewer values is null in the other
rows, and all are null in the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """A column of a database. `values`: literals of SQL; `shown`: an expression for its text, of `{}`, if that is not a cast's."""

    name: str
    sql: str
    values: tuple[str, ...]
    shown: str = ""


def _types(text: str, shown: Mapping[str, str]) -> tuple[Type, ...]:
    types = []
    for line in text.strip().splitlines():
        name, sql, *values = (part.strip() for part in line.split("|"))
        types.append(Type(name, sql, tuple(values), shown.get(name, "")))
    return tuple(types)


POSTGRESQL_SETUP = (
    "create extension hstore",
    "create extension citext",
    "create extension ltree",
    "create extension postgis",
    "create type mood as enum ('sad', 'glad')",
    "create domain price as numeric(8,2)",
    "create type pair as (a int, b text)",
)
POSTGRESQL = _types(
    r"""
    bool       | boolean          | true | false
    int2       | smallint         | 7 | 32767 | -32768
    int4       | integer          | 7 | 2147483647 | -2147483648
    int8       | bigint           | 7 | 9223372036854775807 | -9223372036854775808
    oid        | oid              | 7 | 4294967295 | 0
    float4     | real             | 1.5 | 'Infinity' | '-Infinity' | 'NaN' | 3.4028235e38 | -1e-45
    float8     | double precision | 1.5 | 'Infinity' | '-Infinity' | 'NaN' | 1.7976931348623157e308 | -5e-324
    num_12_2   | numeric(12,2)    | 12.50 | 9999999999.99 | -9999999999.99 | 0
    num        | numeric          | 12.50 | 12345678901234567890.123456789 | -1e-10 | 1e20
    num_nan    | numeric          | 'NaN' | 'Infinity' | '-Infinity'
    num_12_nan | numeric(12,2)    | 'NaN' | 1.25
    num_40_2   | numeric(40,2)    | 12.50 | 99999999999999999999999999999999999999.99
    num_3_neg  | numeric(3,-2)    | 12300 | -99900
    num_3_5    | numeric(3,5)     | 0.00123 | -0.00999
    money      | money            | '12.50' | '92233720368547758.07' | '-92233720368547758.08'
    price      | price            | 12.50 | -1
    char_5     | char(5)          | 'ab' | 'ünï' | ''
    varchar_9  | varchar(9)       | 'ab' | 'ünï€' | ''
    text       | text             | 'ab' | E'line\n"q" \\ \u20ac' | ''
    name       | name             | 'ab'
    citext     | citext           | 'Ab'
    bytea      | bytea            | '\x00ff10' | '\x' | '\xdeadbeef' | '\xfbefbe'
    bit_1      | bit(1)           | B'1' | B'0'
    bit_20     | bit(20)          | B'10100000000000000001' | B'00000000000000000001' | B'11111111111111111111'
    varbit     | bit varying(20)  | B'101' | B'' | B'11111111111111111111'
    date       | date             | '2026-01-31' | '9999-12-31' | '0001-01-01' | '1500-02-28'
    date_inf   | date             | 'infinity' | '-infinity' | '0044-03-15 BC' | '12026-01-31'
    time       | time             | '10:15:30.123456' | '23:59:59.999999' | '00:00:00' | '24:00:00'
    time_0     | time(0)          | '10:15:30' | '23:59:59' | '00:00:00'
    time_3     | time(3)          | '10:15:30.123' | '23:59:59.999' | '00:00:00'
    timetz     | timetz           | '10:15:30.123456+02' | '00:00:00+00' | '23:59:59.999999-12'
    ts         | timestamp        | '2026-01-31 10:15:30.123456' | '9999-12-31 23:59:59.999999' | '0001-01-01 00:00:00' | '1969-12-31 23:59:59.999999'
    ts_0       | timestamp(0)     | '2026-01-31 10:15:30' | '9999-12-31 23:59:59' | '0001-01-01 00:00:00' | '1500-02-28 00:00:01'
    ts_3       | timestamp(3)     | '2026-01-31 10:15:30.123' | '9999-12-31 23:59:59.999' | '0001-01-01 00:00:00' | '1969-12-31 23:59:59.999'
    ts_inf     | timestamp        | 'infinity' | '-infinity' | '0044-03-15 10:00:00 BC' | '12026-01-31 00:00:00'
    tstz       | timestamptz      | '2026-01-31 10:15:30.123456+02' | '9999-12-31 23:59:59.999999+00' | '0001-01-01 00:00:00+00' | '1969-12-31 23:59:59.999999+00'
    tstz_inf   | timestamptz      | 'infinity' | '-infinity' | '0044-03-15 10:00:00+00 BC' | '12026-01-31 00:00:00+00'
    interval   | interval         | '1 year 2 mons 3 days 04:05:06.000007' | '-1 mon' | '0' | '00:00:00.000001'
    uuid       | uuid             | 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
    json       | json             | '{"a": [1, null], "b":"ü"}' | 'null' | '1.50'
    jsonb      | jsonb            | '{"a": [1, null], "b":"ü"}' | 'null' | '1.50'
    xml        | xml              | '<a b="1">ü</a>'
    inet       | inet             | '192.168.1.5' | '192.168.1.5/24' | '2001:db8::1'
    cidr       | cidr             | '192.168.1.0/24' | '2001:db8::/32'
    macaddr    | macaddr          | '08:00:2b:01:02:03'
    macaddr8   | macaddr8         | '08:00:2b:01:02:03:04:05'
    hstore     | hstore           | 'a=>1, b=>NULL' | '' | '"q\"k"=>"v, w"'
    ltree      | ltree            | 'top.science'
    tsvector   | tsvector         | 'fat:2 cat:3A'
    int4range  | int4range        | '[1,5)' | 'empty' | '(,)'
    int8range  | int8range        | '[1,5)'
    numrange   | numrange         | '[1.5,5.25)'
    tsrange    | tsrange          | '["2026-01-31 10:00:00","2026-02-01 00:00:00")' | '[,infinity]'
    tstzrange  | tstzrange        | '["2026-01-31 10:00:00+00","2026-02-01 00:00:00+00")'
    daterange  | daterange        | '[2026-01-31,2026-02-05)'
    mood       | mood             | 'glad'
    point      | point            | '(1.5,-2.25)'
    geometry   | geometry(Point,4326) | 'SRID=4326;POINT(1.5 -2.25)' | 'SRID=4326;POINT(180 90)'
    geography  | geography        | 'SRID=4326;POINT(1.5 -2.25)'
    tsquery    | tsquery          | 'fat & rat'
    line       | line             | '{1,2,3}'
    box        | box              | '((1,2),(0,0))'
    circle     | circle           | '<(1,2),3>'
    pair       | pair             | '(1,b)'
    nummultirange | nummultirange | '{[1,2),[3,4)}'
    pg_lsn     | pg_lsn           | '16/B374D848'
    a_bool     | boolean[]        | '{t,f,null}' | '{}'
    a_int2     | smallint[]       | '{1,-32768,null}' | '{}'
    a_int4     | integer[]        | '{1,-2147483648,null}' | '{}'
    a_int8     | bigint[]         | '{1,-9223372036854775808,null}' | '{}'
    a_float4   | real[]           | '{1.5,null}' | '{}'
    a_float4_n | real[]           | '{NaN,Infinity,-Infinity}'
    a_float8   | double precision[] | '{1.5,null}' | '{}'
    a_num_8_2  | numeric(8,2)[]   | '{12.50,-1.00,null}' | '{}'
    a_num      | numeric[]        | '{12.50,-0.001,null}' | '{}'
    a_text     | text[]           | '{a,"b,c",null,"","NULL"}' | '{}'
    a_varchar  | varchar(9)[]     | '{a,ü,null}'
    a_char     | char(3)[]        | '{a,null}'
    a_citext   | citext[]         | '{Ab}'
    a_bytea    | bytea[]          | array['\x00ff'::bytea, null]
    a_date     | date[]           | '{2026-01-31,0001-01-01,null}' | '{}'
    a_date_inf | date[]           | '{infinity}' | '{-infinity}'
    a_time     | time[]           | '{10:15:30.123456,null}'
    a_timetz   | timetz[]         | '{10:15:30.123456+02,null}'
    a_ts       | timestamp[]      | '{"2026-01-31 10:15:30.123456",null}' | '{}'
    a_ts_inf   | timestamp[]      | '{infinity}' | '{-infinity}'
    a_ts_3     | timestamp(3)[]   | '{"2026-01-31 10:15:30.123",null}'
    a_tstz     | timestamptz[]    | '{"2026-01-31 10:15:30.123456+02",null}'
    a_interval | interval[]       | '{"1 day 02:00:00",null}'
    a_uuid     | uuid[]           | '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,null}'
    a_json     | json[]           | array['{"a": 1}'::json, null]
    a_jsonb    | jsonb[]          | array['{"a": 1}'::jsonb, null]
    a_inet     | inet[]           | '{192.168.1.5,null}'
    a_cidr     | cidr[]           | '{192.168.1.0/24}'
    a_macaddr  | macaddr[]        | '{08:00:2b:01:02:03}'
    a_mood     | mood[]           | '{glad,null}'
    a_hstore   | hstore[]         | array['a=>1'::hstore]
    a_money    | money[]          | array['12.50'::money]
    a_bit      | bit(4)[]         | '{1010}'
    a_range    | int4range[]      | '{"[1,5)"}'
    a_ltree    | ltree[]          | '{top.a}'
    a_price    | price[]          | '{12.50}'
    a_2_dims   | integer[]        | '{{1,2},{3,4}}'
    """,
    {"geometry": "st_asewkt({})", "geography": "st_asewkt({})", "hstore": "hstore_to_json({})"},
)

POSTGRESQL_MODES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "strings": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "base64",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "json",
    },
    "connect": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "connect",
        "binary.handling.mode": "hex",
        "hstore.handling.mode": "map",
    },
    "micro": {"time.precision.mode": "adaptive_time_microseconds", "binary.handling.mode": "base64-url-safe"},
    "microseconds": {"time.precision.mode": "microseconds", "include.unknown.datatypes": "true"},
    "nanoseconds": {"time.precision.mode": "nanoseconds"},
}
"""The settings beside Debezium's own, by the name of the recording."""

MARIADB = _types(
    r"""
    bool       | boolean              | true | false
    bit_1      | bit(1)               | b'1' | b'0'
    bit_20     | bit(20)              | b'10100000000000000001' | b'1' | b'11111111111111111111'
    bit_64     | bit(64)              | b'1' | b'1111111111111111111111111111111111111111111111111111111111111111'
    i1         | tinyint              | 7 | 127 | -128
    i1u        | tinyint unsigned     | 7 | 255 | 0
    i2         | smallint             | 7 | 32767 | -32768
    i2u        | smallint unsigned    | 7 | 65535 | 0
    i3         | mediumint            | 7 | 8388607 | -8388608
    i3u        | mediumint unsigned   | 7 | 16777215 | 0
    i4         | int                  | 7 | 2147483647 | -2147483648
    i4u        | int unsigned         | 7 | 4294967295 | 0
    i8         | bigint               | 7 | 9223372036854775807 | -9223372036854775808
    i8u        | bigint unsigned      | 7 | 18446744073709551615 | 9223372036854775808
    f4         | float                | 1.5 | 3.40282346e38 | -1.17549435e-38
    f8         | double               | 1.5 | 1.7976931348623157e308 | -2.2250738585072014e-308
    dec_12_2   | decimal(12,2)        | 12.50 | 9999999999.99 | -9999999999.99
    dec_8_2u   | decimal(8,2) unsigned | 12.50 | 999999.99
    dec_65_30  | decimal(65,30)       | 12.50 | 99999999999999999999999999999999999.999999999999999999999999999999
    char_5     | char(5)              | 'ab' | 'ünï' | ''
    varchar_9  | varchar(9)           | 'ab' | 'ünï€' | ''
    tinytext   | tinytext             | 'ab' | '' | '🚲'
    text       | text                 | 'ab' | '' | 'line\n\"q'
    mediumtext | mediumtext           | 'ab'
    longtext   | longtext             | 'ab'
    binary_4   | binary(4)            | x'00ff' | x'deadbeef'
    varbinary_9 | varbinary(9)        | x'00ff10' | x'' | x'fbefbe'
    tinyblob   | tinyblob             | x'00ff10' | x''
    blob_      | blob                 | x'00ff10' | x'deadbeef' | x''
    longblob   | longblob             | x'00ff10'
    date       | date                 | '2026-01-31' | '9999-12-31' | '1000-01-01'
    date_old   | date                 | '0000-00-00' | '0001-01-01' | '0070-01-01' | '2026-02-00'
    time       | time                 | '10:15:30' | '23:59:59' | '00:00:00'
    time_3     | time(3)              | '10:15:30.123' | '23:59:59.999'
    time_6     | time(6)              | '10:15:30.123456' | '23:59:59.999999'
    time_far   | time(6)              | '838:59:59.000000' | '-838:59:59.000000' | '-00:00:01.500000' | '24:00:00'
    datetime   | datetime             | '2026-01-31 10:15:30' | '9999-12-31 23:59:59' | '1000-01-01 00:00:00' | '1969-12-31 23:59:59'
    datetime_3 | datetime(3)          | '2026-01-31 10:15:30.123' | '9999-12-31 23:59:59.999' | '1000-01-01 00:00:00'
    datetime_6 | datetime(6)          | '2026-01-31 10:15:30.123456' | '9999-12-31 23:59:59.999999' | '1000-01-01 00:00:00' | '1969-12-31 23:59:59.999999'
    datetime_old | datetime(6)        | '0000-00-00 00:00:00' | '0001-01-01 00:00:00'
    timestamp  | timestamp null       | '2026-01-31 10:15:30' | '1970-01-01 00:00:01' | '2038-01-19 03:14:07'
    timestamp_6 | timestamp(6) null   | '2026-01-31 10:15:30.123456' | '1970-01-01 00:00:00.000001'
    timestamp_0 | timestamp null      | '0000-00-00 00:00:00'
    year       | year                 | 2026 | 1901 | 2155
    year_0     | year                 | 0
    mood       | enum('sad', 'glad')  | 'glad' | 'sad'
    flags      | set('a', 'b', 'c')   | 'a,c' | '' | 'b'
    json       | json                 | '{"a": [1, null], "b":"ü"}' | 'null' | '1.50'
    point      | point                | st_geomfromtext('POINT(1.5 -2.25)') | st_geomfromtext('POINT(180 90)', 4326)
    linestring | linestring           | st_geomfromtext('LINESTRING(1 2,3 4.5)')
    polygon    | polygon              | st_geomfromtext('POLYGON((0 0,1 0,1 1,0 0))')
    geometry   | geometry             | st_geomfromtext('POINT(1.5 -2.25)') | st_geomfromtext('LINESTRING(1 2,3 4.5)')
    """,
    {
        **dict.fromkeys(("bit_1", "bit_20", "bit_64"), "bin({})"),
        **dict.fromkeys(("binary_4", "varbinary_9", "tinyblob", "blob_", "longblob"), "hex({})"),
        **dict.fromkeys(("point", "linestring", "polygon", "geometry"), "st_astext({})"),
        "f4": "cast({} as double)",
    },
)

MARIADB_MODES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "strings": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "base64",
        "bigint.unsigned.handling.mode": "precise",
    },
    "connect": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "connect",
        "binary.handling.mode": "hex",
    },
    "unadjusted": {"binary.handling.mode": "base64-url-safe", "enable.time.adjuster": "false"},
    "microseconds": {"time.precision.mode": "microseconds"},
    "nanoseconds": {"time.precision.mode": "nanoseconds"},
}
