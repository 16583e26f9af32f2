// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_profile.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/model/parts.h"
#include "schedules/runtime/runtime_file.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t kMaxFactor = 1 << 20;  // of a size's numbers, each and together before one

constexpr std::array<std::string_view, kNumSizeLetters> kLetters{
    "e", "n", "l", "h", "q", "k", "qkv", "f", "u", "V", "a", "S", "x",
    "m", "o", "i", "w", "g", "y", "r",   "z", "j", "c", "p", "K"};
constexpr std::array<std::string_view, kNumFlags> kFlags{"dropout",
                                                         "flash",
                                                         "unfused",
                                                         "gated",
                                                         "rope",
                                                         "learned",
                                                         "layernorm",
                                                         "sp",
                                                         "experts",
                                                         "mla",
                                                         "tp",
                                                         "fused_loss",
                                                         "kept_gathers",
                                                         "eager_rope",
                                                         "eager_activation",
                                                         "fp8",
                                                         "eager_attention",
                                                         "eager_norm",
                                                         "grouped_experts",
                                                         "norm_again",
                                                         "latent_again",
                                                         "act_again",
                                                         "mlp_again",
                                                         "shared_again",
                                                         "fp8_dispatch",
                                                         "norm_behind",
                                                         "qk_norm",
                                                         "soft_cap",
                                                         "attention_dropout",
                                                         "embedding_dropout",
                                                         "norm_before",
                                                         "parallel_residual",
                                                         "attention_soft_cap",
                                                         "gathers_tokens",
                                                         "no_attention",
                                                         "no_mixer",
                                                         "no_mlp",
                                                         "one_norm",
                                                         "context_gather",
                                                         "context_exchange",
                                                         "chunked_loss"};

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

// Takes what one file says over what its base said. Kinds and ranges have been checked.
class ProfileReader {
 public:
  ProfileReader(MemoryProfile& profile, const RuntimeFile& file)
      : profile_(profile), document_(*file.document), report_(file.path) {}

  Result<> read() {
    if (const JsonValue* given = document_.given("states")) states(*given);
    if (const JsonValue* given = document_.given("constants")) constants(*given);
    segment("embedding", profile_.embedding);
    segment("layer", profile_.layer);
    segment("head", profile_.head);
    segment("prediction", profile_.prediction);
    if (!report_.ok()) return report_.error();
    return {};
  }

 private:
  static std::int32_t small(const JsonValue& in, std::string_view key) {
    return static_cast<std::int32_t>(in.given(key)->integer);
  }

  void states(const JsonValue& in) {
    profile_.contiguous_gradients = in.given("contiguous_gradients")->boolean;
    profile_.contiguous_parameters_from = small(in, "contiguous_parameters_from_zero_stage");
    profile_.fp32_gradients_at_step = in.given("fp32_gradients_at_step")->boolean;
    profile_.moments_at_first_step = in.given("moments_at_first_step")->boolean;
    profile_.default_dropout = in.given("default_dropout")->number;
    const JsonValue* buckets = in.given("reduction_buckets");
    profile_.reduction_buckets = buckets != nullptr && buckets->boolean;
    const JsonValue* on_host = in.given("flattened_on_host");
    profile_.flattened_on_host = on_host != nullptr && on_host->boolean;
    const JsonValue* gathered = in.given("gathered_elements");
    profile_.gathered_elements = gathered == nullptr ? 0 : gathered->integer;
    const JsonValue* list = in.given("optimizer_list_if");
    profile_.optimizer_list = list == nullptr ? Condition{.all = 1, .none = 1}  // never
                                              : condition(*list, "states.optimizer_list_if");
  }

  void constants(const JsonValue& in) {
    profile_.workspaces.clear();
    for (const JsonValue& row : in.given("workspaces")->items) {
      Workspace made{.bytes = by_capability(*row.given("bytes"), "constants.workspaces")};
      if (const JsonValue* given = row.given("if")) {
        made.condition = condition(*given, "constants.workspaces.if");
      }
      profile_.workspaces.push_back(made);
    }
    profile_.context = by_capability(*in.given("context_bytes"), "constants.context_bytes");
    profile_.communicator = in.given("communicator_bytes")->integer;
    profile_.transfer_buffers = small(in, "transfer_buffers");
    profile_.stale_transfers_per_chunk = small(in, "stale_transfers_per_chunk");
    if (const JsonValue* remap = in.given("remap_us_per_gb")) {
      profile_.remap_us_per_gb = static_cast<std::int32_t>(remap->integer);
    }
  }

  ByCapability by_capability(const JsonValue& value, const std::string& key) {
    if (value.is(JsonKind::Integer)) return {{{.from = 0, .value = value.integer}}};
    ByCapability made;
    for (const JsonValue& item : value.items) {
      const std::int32_t from = small(item, "from_compute_capability");
      if (made.steps.empty() ? from != 0 : from <= made.steps.back().from) {
        report_.fail(item.line, key, "compute capabilities ascend from 0");
      }
      made.steps.push_back({from, item.given("bytes")->integer});
    }
    return made;
  }

  void segment(const std::string& key, SegmentScript& to) {
    const JsonValue* value = document_.given(key);
    if (value == nullptr) return;
    to.forward = rows(*value->given("forward"), key + ".forward");
    to.backward = rows(*value->given("backward"), key + ".backward");
  }

  std::vector<ScriptRow> rows(const JsonValue& list, const std::string& path) {
    std::vector<ScriptRow> found;
    for (const JsonValue& item : list.items) found.push_back(row(item, path));
    return found;
  }

  ScriptRow row(const JsonValue& item, const std::string& path) {
    ScriptRow row;
    const JsonValue *made = item.given("+"), *freed = item.given("-"),
                    *recompute = item.given("recompute"), *mixer = item.given("mixer"),
                    *size = item.given("size");
    const int acts =
        (made != nullptr) + (freed != nullptr) + (recompute != nullptr) + (mixer != nullptr);
    if (acts != 1 || (made != nullptr) != (size != nullptr)) {
      report_.fail(item.line, path, "a row has '+' with 'size', '-', 'recompute' or 'mixer'");
      return row;
    }
    if (made != nullptr) {
      row.tensor = made->text;
      row.size = formula(*size, path + ".size");
    } else if (freed != nullptr) {
      row.act = ScriptRow::Act::Free;
      row.tensor = freed->text;
    } else if (mixer != nullptr) {
      row.act = ScriptRow::Act::Mixer;
    } else {
      row.act = ScriptRow::Act::Recompute;
      row.whole_forward = recompute->text == "all";
    }
    if (const JsonValue* given = item.given("if")) row.condition = condition(*given, path + ".if");
    if (const JsonValue* keep = item.given("keep")) {
      row.keep = keep->text == "always"  ? Keep::Always
                 : keep->text == "drop"  ? Keep::Drop
                 : keep->text == "cheap" ? Keep::Cheap
                 : keep->text == "saved" ? Keep::Saved
                                         : Keep::Streams;
    }
    row.weight_phase = item.given("phase") != nullptr;
    const Flags second = Flags{1} << static_cast<unsigned>(Flag::NoMlp);
    row.block = (row.condition.none & second) != 0 ? kSecondBlock : kFirstBlock;
    return row;
  }

  SizeFormula formula(const JsonValue& value, const std::string& key) {
    SizeFormula sum(1);
    for (const std::string_view word : words(value.text)) {
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
        report_.fail(value.line, key, "'" + std::string(word) + "' is no letter of a size");
      }
    }
    return sum;
  }

  Condition condition(const JsonValue& value, const std::string& key) {
    Condition found;
    for (std::string_view word : words(value.text)) {
      const bool negated = word.starts_with('!');
      if (negated) word.remove_prefix(1);
      const auto flag = std::find(kFlags.begin(), kFlags.end(), word);
      if (flag == kFlags.end()) {
        report_.fail(value.line, key, "'" + std::string(word) + "' is no condition");
        continue;
      }
      (negated ? found.none : found.all) |= Flags{1} << (flag - kFlags.begin());
    }
    return found;
  }

  MemoryProfile& profile_;
  const JsonValue& document_;
  JsonReport report_;
};

}  // namespace

Result<MemoryProfile> read_memory_profile(const std::string& runtime) {
  const Result<std::vector<RuntimeFile>> read = read_runtime_files(runtime, "");
  if (!read) return read.error();
  const std::vector<RuntimeFile>& files = read.value();
  for (const char* part : {"states", "constants", "embedding", "layer", "head"}) {
    const bool said = std::ranges::any_of(
        files, [&](const RuntimeFile& file) { return file.document->given(part) != nullptr; });
    if (!said) {
      return json_error(files.front().path, 1, part, "is missing, here and in every base");
    }
  }
  MemoryProfile profile;
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    if (const Result<> good = ProfileReader(profile, *file).read(); !good) return good.error();
  }
  return profile;
}

}  // namespace rehearse::sim
