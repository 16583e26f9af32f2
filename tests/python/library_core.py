# SPDX-License-Identifier: Apache-2.0
"""In the place of rehearse_train._core where no wheel is built: the same function over librehearse.so, which the
environment's REHEARSE_LIBRARY names. The package around it is tested without a registry."""
import ctypes
import os

_library = ctypes.CDLL(os.environ["REHEARSE_LIBRARY"])
_library.rehearse_ask.restype = ctypes.c_void_p
_library.rehearse_version.restype = ctypes.c_char_p
for _word in ("text", "errors"):
    getattr(_library, "rehearse_" + _word).argtypes = [ctypes.c_void_p]
    getattr(_library, "rehearse_" + _word).restype = ctypes.c_char_p
_library.rehearse_code.argtypes = _library.rehearse_free.argtypes = [ctypes.c_void_p]
version = _library.rehearse_version().decode()


def ask(arguments: list[str], input: str) -> tuple[int, str, str]:  # noqa: A002
    words = (ctypes.c_char_p * len(arguments))(*(word.encode() for word in arguments))
    answer = _library.rehearse_ask(len(arguments), words, input.encode())
    try:
        return (_library.rehearse_code(answer), _library.rehearse_text(answer).decode(),
                _library.rehearse_errors(answer).decode())
    finally:
        _library.rehearse_free(answer)
