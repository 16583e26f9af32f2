// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/shell/shell_arithmetic.h"

#include <cctype>
#include <charconv>

namespace rehearse {
namespace {

constexpr int kDeepestSum = 64;

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const std::function<std::string(const std::string&)>& value)
      : text_(text), value_(value) {}

  std::optional<std::int64_t> run() {
    const std::int64_t made = sum();
    skip();
    if (failed_ || at_ < text_.size()) return {};
    return made;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::int64_t fail() {
    failed_ = true;
    return 0;
  }
  std::int64_t sum() {
    std::int64_t left = product();
    while (!failed_) {
      std::int64_t made = 0;
      if (take('+'))
        failed_ |= __builtin_add_overflow(left, product(), &made);
      else if (take('-'))
        failed_ |= __builtin_sub_overflow(left, product(), &made);
      else
        return left;
      left = made;
    }
    return left;
  }
  std::int64_t product() {
    std::int64_t left = unary();
    while (!failed_) {
      if (take('*')) {
        std::int64_t made = 0;
        if (text_.substr(at_, 1) == "*") return fail();  // powers are not read
        failed_ |= __builtin_mul_overflow(left, unary(), &made);
        left = made;
      } else if (take('/') || take('%')) {
        const bool rest = text_[at_ - 1] == '%';
        const std::int64_t by = unary();
        if (by == 0 || by == -1) return by == 0 ? fail() : rest ? 0 : -left;
        left = rest ? left % by : left / by;
      } else {
        return left;
      }
    }
    return left;
  }
  std::int64_t unary() {
    if (++depth_ > kDeepestSum) return fail();
    std::int64_t made = 0;
    if (take('-')) {
      made = -unary();
    } else if (take('+')) {
      made = unary();
    } else if (take('(')) {
      made = sum();
      if (!take(')')) fail();
    } else {
      made = primary();
    }
    --depth_;
    return made;
  }
  std::int64_t primary() {
    skip();
    const std::size_t first = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    std::string word(text_.substr(first, at_ - first));
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) == 0)
      word = value_(word);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && end == word.data() + word.size() && !word.empty();
    return whole && number > -(std::int64_t{1} << 62) ? number : fail();
  }

  std::string_view text_;
  const std::function<std::string(const std::string&)>& value_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(
    std::string_view text, const std::function<std::string(const std::string&)>& value) {
  return Arithmetic(text, value).run();
}

}  // namespace rehearse
