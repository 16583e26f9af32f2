// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/text_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

namespace rehearse {
namespace {

struct Word {
  std::string_view text;
  OpKind kind;
  Payload payload;
  bool has_microbatch;
  bool of_group = false;  // followed by the name of a group
};
// Longer words first where one begins with another.
constexpr std::array<Word, 21> kWords{{
    {"SEND_F", OpKind::Send, Payload::Activation, true},
    {"SEND_B", OpKind::Send, Payload::Gradient, true},
    {"RECV_F", OpKind::Recv, Payload::Activation, true},
    {"RECV_B", OpKind::Recv, Payload::Gradient, true},
    {"RESHARD", OpKind::Reshard, Payload::None, false},
    {"REDUCE_GRAD", OpKind::ReduceGrad, Payload::None, false},
    {"REDUCE_SCATTER", OpKind::ReduceScatter, Payload::None, false, true},
    {"REDUCE", OpKind::Reduce, Payload::None, false, true},
    {"ALL_REDUCE", OpKind::AllReduce, Payload::None, false, true},
    {"ALL_GATHER", OpKind::AllGather, Payload::None, false, true},
    {"ALL_TO_ALL", OpKind::AllToAll, Payload::None, false, true},
    {"BROADCAST", OpKind::Broadcast, Payload::None, false, true},
    {"GATHER", OpKind::Gather, Payload::None, false, true},
    {"SCATTER", OpKind::Scatter, Payload::None, false, true},
    {"UNSHARD", OpKind::Unshard, Payload::None, false},
    {"OPTIMIZER_STEP", OpKind::OptimizerStep, Payload::None, false},
    {"F", OpKind::Forward, Payload::None, true},
    {"B", OpKind::Backward, Payload::None, true},
    {"I", OpKind::InputGradient, Payload::None, true},
    {"W", OpKind::WeightGradient, Payload::None, true},
    {"R", OpKind::Recompute, Payload::None, true},
}};

constexpr std::int32_t kMostSegments = std::numeric_limits<std::int16_t>::max() - 1;
constexpr std::size_t kLongestGroupName = 32;
constexpr std::string_view kOverlap = "OVERLAP_F_B";

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 24)) out += c >= ' ' && c < 0x7f ? c : '?';
  return out + (text.size() > 24 ? "...\"" : "\"");
}

// Reads from the left; keeps the first error.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool ok() const { return error_.empty(); }
  bool at_end() const { return at_ == text_.size(); }
  Error error() const { return {error_}; }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  std::string_view rest() const { return text_.substr(at_); }

  void fail(const std::string& what) {
    if (ok()) error_ = "column " + std::to_string(at_ + 1) + ": " + what;
  }
  bool take(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail("expected " + quoted(word) + found());
  }
  // Decimal digits only; what names the number in the error.
  std::int32_t number(std::string_view what, std::int32_t largest = 99'999'999) {
    const std::string_view from = rest();
    if (from.empty() || from[0] < '0' || from[0] > '9') {
      fail("expected " + std::string(what) + found());
      return 0;
    }
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(from.data(), from.data() + from.size(), value);
    if (code != std::errc{} || value > largest) {
      fail(std::string(what) + " is larger than " + std::to_string(largest));
      return 0;
    }
    at_ += static_cast<std::size_t>(end - from.data());
    return static_cast<std::int32_t>(value);
  }
  void finish() {
    if (!at_end()) fail("unexpected " + quoted(rest()));
  }

  Op op() {
    Op op;
    op.stage = {number("a stage number")};
    if (!ok()) return {};
    const Word* word = nullptr;
    for (const Word& candidate : kWords) {
      if (take(candidate.text)) {
        word = &candidate;
        break;
      }
    }
    if (word == nullptr) {
      fail(
          "expected F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, "
          "REDUCE_GRAD, OPTIMIZER_STEP or a collective" +
          found());
      return {};
    }
    op.kind = word->kind;
    op.payload = word->payload;
    op.stream = traits(op.kind).stream;
    if (word->of_group) {
      op.instance = std::exchange(op.stage, Stage{}).value;
      op.stream = Stream::Compute;
      group();
    }
    if (!word->has_microbatch) return op;
    op.microbatch = {number("a micro-batch number")};
    if (ok() && take(".")) {
      op.slice = static_cast<std::int8_t>(number("a slice number", 127));
    }
    if (ok() && is_compute(op.kind) && take("[")) segments(op);
    if (ok() && is_transfer_word(op.kind)) peer(op);
    return op;
  }

  ParsedOp parsed_op() {
    if (peek() != '(') {
      ParsedOp parsed{.op = op()};
      parsed.group = group_;
      return parsed;
    }
    expect("(");
    ParsedOp pair;
    pair.op.kind = OpKind::Overlap;
    pair.children[0] = op();
    if (ok() && pair.children[0].kind != OpKind::Forward) {
      fail("the first op of an overlapped pair is a forward");
    }
    if (ok()) expect(";");
    if (ok()) pair.children[1] = op();
    if (ok() && !is_backward(pair.children[1].kind)) {
      fail("the second op of an overlapped pair is a backward (B or I)");
    }
    if (ok()) expect(")");
    if (ok()) expect(kOverlap);
    pair.op.stage = pair.children[0].stage;  // a pair is filed under its forward
    pair.op.microbatch = pair.children[0].microbatch;
    return pair;
  }

 private:
  static bool is_transfer_word(OpKind kind) { return kind == OpKind::Send || kind == OpKind::Recv; }
  std::string found() const { return at_end() ? ", found the end" : ", found " + quoted(rest()); }
  void segments(Op& op) {
    const std::int32_t begin = number("a segment number", kMostSegments);
    std::int32_t end = begin + 1;
    if (ok() && take(":")) end = number("a segment number", kMostSegments);
    if (ok() && end <= begin) fail("the part ends before it begins");
    if (ok()) expect("]");
    op.segment_begin = static_cast<std::int16_t>(begin);
    op.segment_end = static_cast<std::int16_t>(end);
  }
  void group() {
    expect("[");
    const std::size_t end = std::min(rest().find(']'), rest().size());
    group_ = rest().substr(0, end);
    if (ok() && !is_group_name(group_)) fail("expected the name of a group" + found());
    at_ += end;
    if (ok()) expect("]");
  }
  void peer(Op& op) {
    const std::string_view arrow = op.kind == OpKind::Send ? ">r" : "<r";
    if (peek() != '>' && peek() != '<') return;
    expect(arrow);
    if (ok()) op.peer = {number("a rank")};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
  std::string_view group_;  // of the op just read
};

}  // namespace

bool is_group_name(std::string_view name) {
  const auto may_stand = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kLongestGroupName && std::ranges::all_of(name, may_stand);
}

Result<ParsedOp> parse_op(std::string_view text) {
  Reader reader(text);
  ParsedOp parsed = reader.parsed_op();
  if (reader.ok()) reader.finish();
  if (!reader.ok()) return reader.error();
  return parsed;
}

Result<ParsedCell> parse_cell(std::string_view text) {
  Reader reader(text);
  ParsedCell cell;
  cell.group = reader.take("[");
  do {
    cell.ops.push_back(reader.parsed_op());
    const OpKind kind = cell.ops.back().op.kind;
    if (reader.ok() && cell.group && kind != OpKind::Send && kind != OpKind::Recv) {
      reader.fail("a group holds SEND and RECV only");
    }
  } while (reader.ok() && cell.group && reader.take(" "));
  if (reader.ok() && cell.group) reader.expect("]");
  if (reader.ok()) reader.finish();
  if (!reader.ok()) return reader.error();
  return cell;
}

}  // namespace rehearse
