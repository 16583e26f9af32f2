// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/reader/given_keys.h"

namespace rehearse {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string product(std::initializer_list<std::int64_t> factors) {
  std::string text;
  for (const std::int64_t factor : factors) text += (text.empty() ? "" : " x ") + number(factor);
  return text;
}

std::int64_t GivenKeys::integer(const PlanField& key, std::int64_t otherwise) const {
  const JsonValue* value = given(key);
  return value == nullptr ? otherwise : value->integer;
}

std::int32_t GivenKeys::size(const PlanField& key, std::int32_t otherwise) const {
  return static_cast<std::int32_t>(integer(key, otherwise));
}

bool GivenKeys::flag(const PlanField& key, bool otherwise) const {
  const JsonValue* value = given(key);
  return value == nullptr ? otherwise : value->boolean;
}

void GivenKeys::fail(const PlanField& key, const std::string& what, bool unsupported) const {
  fail(path_of(key), what, unsupported);
}

void GivenKeys::fail(std::string_view path, const std::string& what, bool unsupported) const {
  const std::size_t dot = path.find('.');
  const JsonMember* member = json.find(path.substr(0, dot));
  if (dot != std::string_view::npos && member != nullptr) {
    member = member->value.find(path.substr(dot + 1));
  }
  report.fail(member == nullptr ? json.line : member->line, "plan." + std::string(path), what,
              unsupported);
}

void GivenKeys::divides(const PlanField& key, std::int64_t divisor, std::string_view what,
                        std::int64_t value) const {
  if (value % divisor == 0) return;
  fail(key, number(divisor) + " does not divide " + std::string(what) + " " + number(value));
}

}  // namespace rehearse
