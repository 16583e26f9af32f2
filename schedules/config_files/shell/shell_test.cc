// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/shell/shell_test.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "schedules/config_files/shell/shell_script.h"

namespace rehearse {
namespace {

constexpr int kDeepestTest = 64;

Truth truth_of(bool value) {
  return value ? Truth::Yes : Truth::No;
}

class ShellTest {
 public:
  ShellTest(const std::vector<ShellToken>& tokens,
            const std::function<std::string(const ShellToken& word)>& text)
      : t_(tokens), text_(text) {}

  Truth run() {
    std::size_t at = 0;
    const Truth made = any_of(at);
    return at < t_.size() ? Truth::Unknown : made;
  }

 private:
  bool is_token(std::size_t at, std::string_view text) const {
    return at < t_.size() && t_[at].text == text;
  }
  Truth any_of(std::size_t& at) {
    Truth made = all_of(at);
    while (is_token(at, "||") || is_token(at, "-o")) {
      const Truth next = all_of(++at);
      made = made == Truth::Yes || next == Truth::Yes ? Truth::Yes
             : made == Truth::No && next == Truth::No ? Truth::No
                                                      : Truth::Unknown;
    }
    return made;
  }
  Truth all_of(std::size_t& at) {
    Truth made = one_of(at);
    while (is_token(at, "&&") || is_token(at, "-a")) {
      const Truth next = one_of(++at);
      made = made == Truth::No || next == Truth::No     ? Truth::No
             : made == Truth::Yes && next == Truth::Yes ? Truth::Yes
                                                        : Truth::Unknown;
    }
    return made;
  }
  Truth one_of(std::size_t& at) {
    if (++depth_ > kDeepestTest) at = t_.size();
    const Truth made = one(at);
    --depth_;
    return made;
  }
  Truth one(std::size_t& at) {
    if (is_token(at, "!")) {
      const Truth made = one_of(++at);
      return made == Truth::Unknown ? made : truth_of(made == Truth::No);
    }
    if (is_token(at, "(")) {
      const Truth made = any_of(++at);
      if (is_token(at, ")")) ++at;
      return made;
    }
    if (at >= t_.size()) return Truth::Unknown;
    const auto word = [&](std::size_t i) { return text_(t_[i]); };
    if (t_[at].text.size() == 2 && t_[at].text[0] == '-' && at + 1 < t_.size()) {
      const char op = t_[at].text[1];
      const std::string value = word(at + 1);
      at += 2;
      if ((op != 'z' && op != 'n') || !unknown_in(value).empty()) return Truth::Unknown;
      return truth_of(value.empty() == (op == 'z'));
    }
    const std::string left = word(at++);
    static constexpr std::array<std::string_view, 12> kTwo{"=",   "==",  "!=",  "-eq", "-ne", "-lt",
                                                           "-le", "-gt", "-ge", "<",   ">",   "=~"};
    if (at + 1 >= t_.size() || std::ranges::find(kTwo, t_[at].text) == kTwo.end()) {
      return unknown_in(left).empty() ? truth_of(!left.empty()) : Truth::Unknown;
    }
    const std::string op = t_[at].text, right = word(at + 1);
    at += 2;
    if (!unknown_in(left).empty() || !unknown_in(right).empty()) return Truth::Unknown;
    if (op == "=" || op == "==") {
      return right.find('*') == std::string::npos ? truth_of(left == right) : Truth::Unknown;
    }
    if (op == "!=")
      return right.find('*') == std::string::npos ? truth_of(left != right) : Truth::Unknown;
    std::int64_t a = 0, b = 0;
    const auto whole = [](const std::string& text, std::int64_t& to) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
      return error == std::errc() && end == text.data() + text.size();
    };
    if (!whole(left, a) || !whole(right, b)) return Truth::Unknown;
    if (op == "-eq") return truth_of(a == b);
    if (op == "-ne") return truth_of(a != b);
    if (op == "-lt") return truth_of(a < b);
    if (op == "-le") return truth_of(a <= b);
    if (op == "-gt") return truth_of(a > b);
    if (op == "-ge") return truth_of(a >= b);
    return Truth::Unknown;
  }

  const std::vector<ShellToken>& t_;
  const std::function<std::string(const ShellToken& word)>& text_;
  int depth_ = 0;
};

}  // namespace

Truth shell_test(const std::vector<ShellToken>& tokens,
                 const std::function<std::string(const ShellToken& word)>& text) {
  return ShellTest(tokens, text).run();
}

}  // namespace rehearse
