// SPDX-License-Identifier: Apache-2.0
// A value or the reason why there is none. (std::expected needs C++23, which nvcc 13.0 lacks.)
#pragma once

#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace rehearse {

struct Error {
  std::string message;  // what is wrong, where, and what would be right
  // sound input that this version cannot do: `validate` skips such a case
  bool unsupported = false;
  // sound input whose answer is no (a plan that needs more memory): exit 1
  bool infeasible = false;
  // sound input that failed here: memory, a device, another process: exit 3
  bool machine = false;
};

template <class T = std::monostate>
class [[nodiscard]] Result {
 public:
  Result() requires std::is_same_v<T, std::monostate>
  = default;
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  // REQUIRES: *this holds a value. Asking an error for its value is our bug: the process stops.
  const T& value() const& { return *checked(std::get_if<0>(&state_)); }
  T&& value() && { return std::move(*checked(std::get_if<0>(&state_))); }
  // REQUIRES: *this holds an error.
  const Error& error() const { return *checked(std::get_if<1>(&state_)); }

 private:
  template <class Held>
  static Held* checked(Held* held) {
    if (held == nullptr) std::abort();
    return held;
  }
  std::variant<T, Error> state_;
};

}  // namespace rehearse
