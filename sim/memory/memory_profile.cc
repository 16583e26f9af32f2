// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_profile.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t kMaxFactor = 1 << 20;  // of a size's numbers, each and together before one

constexpr std::array<std::string_view, kNumSizeLetters> kLetters{
    "e", "n", "l", "h", "q", "k", "qkv", "f", "u", "V", "a", "S", "x", "m"};
constexpr std::array<std::string_view, kNumFlags> kFlags{
    "dropout",   "flash", "unfused", "gated", "rope", "learned",
    "layernorm", "sp",    "experts", "mla",   "tp",   "fused_loss"};

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  while (true) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return found;
    text.remove_prefix(begin);
    const std::size_t length = std::min(text.find(' '), text.size());
    found.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
}

class ProfileReader {
 public:
  explicit ProfileReader(const std::string& path) : report_(path) {}

  Result<MemoryProfile> read(const JsonValue& document) {
    MemoryProfile profile;
    profile.id = text(document, "", "id");
    const JsonValue& states = object(document, "", "states");
    profile.contiguous_gradients = boolean(states, "states", "contiguous_gradients");
    profile.contiguous_parameters_from =
        small(states, "states", "contiguous_parameters_from_zero_stage");
    profile.gather_units_from = small(states, "states", "gather_units_from_zero_stage");
    profile.fp32_gradients_at_step = boolean(states, "states", "fp32_gradients_at_step");
    profile.optimizer_list = states_condition(states, "optimizer_list_if");
    profile.moments_at_first_step = boolean(states, "states", "moments_at_first_step");
    profile.default_dropout = number(states, "states", "default_dropout");
    const JsonValue& constants = object(document, "", "constants");
    for (const JsonValue& row : array(constants, "constants", "workspaces").items) {
      profile.workspaces.push_back(by_capability(row, "constants.workspaces", "bytes"));
    }
    profile.context = by_capability(constants, "constants", "context_bytes");
    profile.communicator = integer(constants, "constants", "communicator_bytes");
    profile.transfer_buffers = small(constants, "constants", "transfer_buffers");
    profile.stale_transfers_per_chunk = small(constants, "constants", "stale_transfers_per_chunk");
    profile.embedding = segment(document, "embedding");
    profile.layer = segment(document, "layer");
    profile.head = segment(document, "head");
    if (!report_.ok()) return report_.error();
    return profile;
  }

 private:
  const JsonValue& need(const JsonValue& in, const std::string& path, std::string_view key,
                        bool (*fits)(const JsonValue&), const char* what) {
    static const JsonValue kNothing;
    const std::string name = (path.empty() ? "" : path + ".") + std::string(key);
    const JsonValue* value = in.given(key);
    if (value == nullptr) {
      report_.fail(in.line, name, "is missing");
      return kNothing;
    }
    if (!fits(*value)) {
      report_.fail(value->line, name, what);
      return kNothing;
    }
    return *value;
  }
  const JsonValue& object(const JsonValue& in, const std::string& path, std::string_view key) {
    return need(
        in, path, key, [](const JsonValue& v) { return v.is(JsonKind::Object); },
        "must be an object");
  }
  const JsonValue& array(const JsonValue& in, const std::string& path, std::string_view key) {
    return need(
        in, path, key, [](const JsonValue& v) { return v.is(JsonKind::Array); }, "must be a list");
  }
  std::string text(const JsonValue& in, const std::string& path, std::string_view key) {
    return need(
               in, path, key, [](const JsonValue& v) { return v.is(JsonKind::String); },
               "must be a string")
        .text;
  }
  bool boolean(const JsonValue& in, const std::string& path, std::string_view key) {
    return need(
               in, path, key, [](const JsonValue& v) { return v.is(JsonKind::Bool); },
               "must be true or false")
        .boolean;
  }
  std::int64_t integer(const JsonValue& in, const std::string& path, std::string_view key) {
    return need(
               in, path, key,
               [](const JsonValue& v) { return v.is(JsonKind::Integer) && v.integer >= 0; },
               "must be an integer >= 0")
        .integer;
  }
  std::int32_t small(const JsonValue& in, const std::string& path, std::string_view key) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(integer(in, path, key), 1000));
  }
  double number(const JsonValue& in, const std::string& path, std::string_view key) {
    return need(
               in, path, key, [](const JsonValue& v) { return v.is_number(); }, "must be a number")
        .number;
  }
  ByCapability by_capability(const JsonValue& in, const std::string& path, const std::string& key) {
    ByCapability bytes;
    bytes.before_sm90 = bytes.from_sm90 = integer(in, path, key);
    const std::string newer = key + "_from_sm90";
    if (in.given(newer) != nullptr) bytes.from_sm90 = integer(in, path, newer);
    return bytes;
  }

  // Left out: never.
  Condition states_condition(const JsonValue& states, std::string_view key) {
    for (const JsonMember& member : states.members) {
      if (member.key == key) return condition(member, "states." + member.key);
    }
    return {.all = 1, .none = 1};
  }

  SegmentScript segment(const JsonValue& document, const std::string& key) {
    const JsonValue& value = object(document, "", key);
    SegmentScript script;
    script.forward = rows(array(value, key, "forward"), key + ".forward");
    script.backward = rows(array(value, key, "backward"), key + ".backward");
    return script;
  }

  std::vector<ScriptRow> rows(const JsonValue& list, const std::string& path) {
    std::vector<ScriptRow> found;
    for (const JsonValue& item : list.items) {
      ScriptRow row;
      for (const JsonMember& member : item.members) read_member(member, path, row);
      if (row.act == ScriptRow::Act::Allocate && (row.tensor.empty() || row.size.empty())) {
        report_.fail(item.line, path, "a row has '+' with 'size', '-', or 'recompute'");
      }
      found.push_back(std::move(row));
    }
    return found;
  }

  void read_member(const JsonMember& member, const std::string& path, ScriptRow& row) {
    const std::string key = path + "." + member.key;
    const std::string& value = member.value.text;
    if (!member.value.is(JsonKind::String)) {
      report_.fail(member.line, key, "must be a string");
    } else if (member.key == "+") {
      row.tensor = value;
    } else if (member.key == "-") {
      row.act = ScriptRow::Act::Free;
      row.tensor = value;
    } else if (member.key == "recompute") {
      row.act = ScriptRow::Act::Recompute;
      row.whole_forward = value == "all";
      if (value != "all" && value != "drop") {
        report_.fail(member.line, key, "must be \"all\" or \"drop\"");
      }
    } else if (member.key == "size") {
      row.size = formula(member, key);
    } else if (member.key == "if") {
      row.condition = condition(member, key);
    } else if (member.key == "phase") {
      if (value != "W") report_.fail(member.line, key, "must be \"W\"");
      row.weight_phase = true;
    } else if (member.key == "keep") {
      if (value == "always") {
        row.keep = Keep::Always;
      } else if (value == "drop") {
        row.keep = Keep::Drop;
      } else if (value == "saved") {
        row.keep = Keep::Saved;
      } else {
        report_.fail(member.line, key, "must be \"always\", \"drop\" or \"saved\"");
      }
    } else {
      report_.fail(member.line, key, "unknown key");
    }
  }

  SizeFormula formula(const JsonMember& member, const std::string& key) {
    SizeFormula sum(1);
    for (const std::string_view word : words(member.value.text)) {
      if (word == "+") {
        sum.emplace_back();
        continue;
      }
      const auto letter = std::find(kLetters.begin(), kLetters.end(), word);
      std::int64_t factor = 0;
      const auto parsed = std::from_chars(word.data(), word.data() + word.size(), factor);
      if (letter != kLetters.end()) {
        ++sum.back().power[static_cast<std::size_t>(letter - kLetters.begin())];
      } else if (parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() &&
                 factor > 0 && factor <= kMaxFactor && sum.back().factor <= kMaxFactor) {
        sum.back().factor *= factor;
      } else {
        report_.fail(member.line, key, "'" + std::string(word) + "' is no letter of a size");
      }
    }
    return sum;
  }

  Condition condition(const JsonMember& member, const std::string& key) {
    Condition found;
    for (std::string_view word : words(member.value.text)) {
      const bool negated = word.starts_with('!');
      if (negated) word.remove_prefix(1);
      const auto flag = std::find(kFlags.begin(), kFlags.end(), word);
      if (flag == kFlags.end()) {
        report_.fail(member.line, key, "'" + std::string(word) + "' is no condition");
        continue;
      }
      (negated ? found.none : found.all) |= Flags{1} << (flag - kFlags.begin());
    }
    return found;
  }

  JsonReport report_;
};

}  // namespace

Result<MemoryProfile> read_memory_profile(const std::string& path) {
  const Result<JsonValue> document = read_json(path);
  if (!document) return document.error();
  return ProfileReader(path).read(document.value());
}

Result<MemoryProfile> shipped_memory_profile(Runtime runtime) {
  const std::string name = runtime == Runtime::Fsdp ? "fsdp" : "megatron";
  return read_memory_profile(shipped_directory() + "/runtimes/" + name + ".json");
}

}  // namespace rehearse::sim
