// SPDX-License-Identifier: Apache-2.0
// Python recipes are read as text, never run: of one function the statements `cfg.a.b = value` and
// `cfg.a = Name(key=value, ...)`, and what it returns as `Name(key=value, ...)`. A value is a
// number, a text, True, False, None, a product, a list of those, a constant of the file, an
// argument's default; another one, load("x"), is taken as it is written.
// Functions that it calls are read with their arguments: those of the file, and of files of the
// same checkout that it imports (python_file.h) where they make the configuration or are given it.
// A branch whose test hangs on something else, and every loop, is left out with a note.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "schedules/base/result.h"
#include "schedules/frameworks/setting.h"

namespace rehearse {

// Flags by their names in the recipe: "model.tensor_model_parallel_size"; "recipe", the function's
// name, whose "_64gpu_" says how many GPUs are launched. `recipe`: the function; empty: the only
// one. `variables`: values of names that stand on a right side. Errors: "FILE:LINE: ...".
Result<Settings> flags_of_python(std::string_view text, const std::string& file,
                                 const std::string& recipe,
                                 const std::map<std::string, std::string>& variables);

}  // namespace rehearse
