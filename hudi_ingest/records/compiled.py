"""Loops that are compiled to machine code, by numba, and the machine's own operations for them: memory by address, and arithmetic on int64
throughout, unsigned where a name says so. Import the modules that have such loops only where they run, in Spark's Python workers: numba
takes a while to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.extending
from llvmlite import ir
from numba import types

_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_BLOCK = ir.VectorType(_I8, 32)
_Function = TypeVar("_Function", bound=Callable[..., Any])

intrinsic: Callable[[_Function], Any] = numba.extending.intrinsic
"""numba's, for what its Python cannot say."""


def compiled(signature: str) -> Callable[[_Function], _Function]:
    """Compile at import, or load what an earlier process of this machine has compiled. The GIL is released while it runs."""

    def decorate(function: _Function) -> _Function:
        try:
            found: _Function = numba.njit(signature, nogil=True, cache=True)(function)
        except (RuntimeError, OSError):
            # No folder to keep it in can be written to: each process compiles for itself.
            found = numba.njit(signature, nogil=True)(function)
        return found

    return decorate


def _operation(arguments: int, result: Any, emit: Callable[..., Any]) -> Any:
    """A function of int64 arguments that is the LLVM code which `emit` writes."""
    signature = result(*[types.int64] * arguments)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return emit(builder, *values)

    if arguments == 1:

        @intrinsic
        def operation1(context: Any, first: Any) -> Any:
            return signature, generate

        return operation1

    @intrinsic
    def operation2(context: Any, first: Any, second: Any) -> Any:
        return signature, generate

    return operation2


def _load(kind: Any) -> Any:
    def emit(builder: Any, address: Any) -> Any:
        value = builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)
        return value if kind.width == 64 else builder.zext(value, _I64)

    return _operation(1, types.int64, emit)


def _store(kind: Any) -> Any:
    def emit(builder: Any, address: Any, value: Any) -> Any:
        narrow = value if kind.width == 64 else builder.trunc(value, kind)
        builder.store(narrow, builder.inttoptr(address, kind.as_pointer()), align=1)
        return ir.Constant(_I64, 0)

    return _operation(2, types.int64, emit)


def _high_product(builder: Any, first: Any, second: Any) -> Any:
    product = builder.mul(builder.zext(first, _I128), builder.zext(second, _I128))
    return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)


def _bits_of_float32(builder: Any, bits: Any) -> Any:
    narrow = builder.fptrunc(builder.bitcast(bits, ir.DoubleType()), ir.FloatType())
    return builder.zext(builder.bitcast(narrow, _I32), _I64)


def _special(builder: Any, source: Any, target: Any = None) -> Any:
    """Classify 32 bytes, copied to the target: bit n says that byte n ends plain text (a quote, a backslash or a control
    character), bit 32 + n that it is not ASCII."""
    block = builder.load(builder.inttoptr(source, _BLOCK.as_pointer()), align=1)
    if target is not None:
        builder.store(block, builder.inttoptr(target, _BLOCK.as_pointer()), align=1)

    def constant(value: int) -> Any:
        return ir.Constant(_BLOCK, [value] * 32)

    quotes = builder.icmp_unsigned("==", block, constant(0x22))
    backslashes = builder.icmp_unsigned("==", block, constant(0x5C))
    controls = builder.icmp_unsigned("<", block, constant(0x20))
    ends = builder.or_(builder.or_(quotes, backslashes), controls)
    beyond_ascii = builder.icmp_signed("<", block, constant(0))
    low, high = (builder.zext(builder.bitcast(bits, _I32), _I64) for bits in (ends, beyond_ascii))
    return builder.or_(low, builder.shl(high, ir.Constant(_I64, 32)))


_no = ir.Constant(ir.IntType(1), 0)
byte, int32, word = _load(_I8), _load(_I32), _load(_I64)
put_byte, put_int16, put_int32, put_word = (_store(ir.IntType(bits)) for bits in (8, 16, 32, 64))
shifted_right = _operation(2, types.int64, lambda builder, value, bits: builder.lshr(value, bits))
below = _operation(2, types.boolean, lambda builder, first, second: builder.icmp_unsigned("<", first, second))
high_product = _operation(2, types.int64, _high_product)
trailing_zeros = _operation(1, types.int64, lambda builder, value: builder.cttz(value, _no))
leading_zeros = _operation(1, types.int64, lambda builder, value: builder.ctlz(value, _no))
as_float32 = _operation(1, types.int64, _bits_of_float32)
looked_at = _operation(1, types.int64, lambda builder, source: _special(builder, source))
copied = _operation(2, types.int64, _special)


@intrinsic
def bits_of(context: Any, number: Any) -> Any:
    return types.int64(types.float64), lambda context, builder, signature, values: builder.bitcast(values[0], _I64)


hot = numba.njit(error_model="numpy", forceinline=True)
cold = numba.njit(error_model="numpy")
