// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's OpenTelemetry spans (scenarios/profiles/spans.json), in files of OTLP as JSON: an
// object with "resourceSpans", or one after another (opentelemetry.io/docs/specs/otel/protocol/
// file-exporter). The resource says rank and sizes of the mesh: dl.rank, dl.world_size of
// NVIDIA-NeMo/ Lens, b85578f, src/nemo/lens/providers.py; dl.pipeline_parallel.size and its like of
// Megatron-LM, megatron/training/global_vars.py.
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "viz/import/json_scanner.h"
#include "viz/profile/read_profiles.h"

namespace rehearse::viz {
namespace {

enum class SpanIs : std::uint8_t {
  Step,
  Pass,  // all micro-batches of a step
  Forward,
  Backward,
  Computes,
  SendsForward,
  ReceivesForward,
  SendsBackward,
  ReceivesBackward,
  Reduces,
  Copies,
};
constexpr std::string_view kSpanWords[]{"step",
                                        "pass",
                                        "forward",
                                        "backward",
                                        "computes",
                                        "sends_forward",
                                        "receives_forward",
                                        "sends_backward",
                                        "receives_backward",
                                        "reduces",
                                        "copies"};

using SpanTable = std::map<std::string, SpanIs, std::less<>>;

Result<SpanTable> span_table() {
  const std::string path = shipped_directory() + "/profiles/spans.json";
  const Result<JsonValue> document = read_json(path);
  if (!document) return document.error();
  SpanTable table;
  if (const JsonValue* rows = document.value().given("spans")) {
    for (const JsonValue& row : rows->items) {
      const JsonValue *span = row.given("span"), *is = row.given("is");
      const auto* word = is == nullptr ? std::end(kSpanWords)
                                       : std::ranges::find(kSpanWords, std::string_view(is->text));
      if (span == nullptr || word == std::end(kSpanWords)) {
        return json_error(path, row.line, "spans", "is no span of a known kind");
      }
      table[span->text] = static_cast<SpanIs>(word - std::begin(kSpanWords));
    }
  }
  return table;
}

struct Span {
  SpanIs is{};
  std::int64_t begin = 0, end = 0;  // [ns] since 1970
  std::int64_t iteration = -1, microbatches = -1;
};

struct Resource {
  std::int64_t rank = -1, world = -1, tensor = 1, pipeline = 1;
};

// What one file or several say of one rank.
struct SpansOfRank {
  Resource resource;
  std::vector<Span> spans;
};

class OtlpReader {
 public:
  OtlpReader(std::string_view text, const SpanTable& table,
             std::map<std::int64_t, SpansOfRank>& out)
      : in_(text), table_(table), out_(out) {}

  void read() {
    do {
      document();
    } while (in_.ok() && in_.peek() != 0);
  }
  const JsonScanner& scanner() const { return in_; }

 private:
  // Calls member(key) for each member of an object, item() for each of a list.
  template <class Member>
  void object(const Member& member) {
    bool first = true;
    std::string_view key;
    if (!in_.enter('{')) return;
    while (in_.next_key(first, key)) member(key);
  }
  template <class Item>
  void list(const Item& item) {
    bool first = true;
    if (!in_.enter('[')) return;
    while (in_.next_item(first)) item();
  }

  void document() {
    bool found = false;
    object([&](std::string_view key) {
      if (key != "resourceSpans") return in_.skip();
      found = true;
      list([this] { resource_spans(); });
    });
    if (in_.ok() && !found) in_.fail("\"resourceSpans\" is missing: no spans of OpenTelemetry");
  }

  void resource_spans() {
    Resource resource;
    std::vector<Span> spans;
    object([&](std::string_view key) {
      if (key == "resource") {
        object([&](std::string_view of) {
          if (of != "attributes") return in_.skip();
          list([&] { resource_attribute(resource); });
        });
      } else if (key == "scopeSpans") {
        list([&] {
          object([&](std::string_view of) {
            if (of != "spans") return in_.skip();
            list([&] { span(spans); });
          });
        });
      } else {
        in_.skip();
      }
    });
    if (!in_.ok() || spans.empty()) return;  // of a process that does not train
    if (resource.rank < 0) return in_.fail("dl.rank is missing among the resource's attributes");
    SpansOfRank& rank = out_[resource.rank];
    rank.resource = resource;
    rank.spans.insert(rank.spans.end(), spans.begin(), spans.end());
  }

  // {"key": "dl.rank", "value": {"intValue": "3"}}
  void attribute(std::string& name, std::string& value) {
    object([&](std::string_view key) {
      if (key == "key" && in_.peek() == '"') {
        name = in_.string();
      } else if (key == "value" && in_.peek() == '{') {
        object([&](std::string_view) { value = scalar(); });
      } else {
        in_.skip();
      }
    });
  }
  // A text, or a number as it stands; else nothing.
  std::string scalar() {
    const char next = in_.peek();
    if (next == '"') return in_.string();
    if (next != '-' && (next < '0' || next > '9')) {
      in_.skip();
      return {};
    }
    const std::size_t from = in_.offset();
    in_.skip();
    return std::string(in_.text_since(from));
  }
  static std::int64_t whole(std::string_view text) {
    std::int64_t value = -1;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    return fault == std::errc() && end == text.data() + text.size() ? value : -1;
  }

  void resource_attribute(Resource& resource) {
    std::string name, value;
    attribute(name, value);
    if (name == "dl.rank") resource.rank = whole(value);
    if (name == "dl.world_size") resource.world = whole(value);
    if (name == "dl.tensor_parallel.size") resource.tensor = whole(value);
    if (name == "dl.pipeline_parallel.size") resource.pipeline = whole(value);
    // "RUN-rank3"
    constexpr std::string_view kRank = "-rank";
    const std::size_t at = value.rfind(kRank);
    if (name == "service.instance.id" && resource.rank < 0 && at != std::string::npos) {
      resource.rank = whole(std::string_view(value).substr(at + kRank.size()));
    }
    if (resource.rank > std::numeric_limits<std::int32_t>::max()) in_.fail("a rank was expected");
  }

  void span(std::vector<Span>& spans) {
    Span one{.begin = -1, .end = -1};
    std::string name;
    object([&](std::string_view key) {
      if (key == "name" && in_.peek() == '"') {
        name = in_.string();
      } else if (key == "startTimeUnixNano") {
        one.begin = whole(scalar());
      } else if (key == "endTimeUnixNano") {
        one.end = whole(scalar());
      } else if (key == "attributes" && in_.peek() == '[') {
        list([&] {
          std::string of, value;
          attribute(of, value);
          if (of == "megatron.iteration") one.iteration = whole(value);
          if (of == "num_microbatches") one.microbatches = whole(value);
        });
      } else {
        in_.skip();
      }
    });
    const auto known = table_.find(name);
    if (!in_.ok() || known == table_.end()) return;
    constexpr std::int64_t kMost = std::int64_t{1} << 61;  // [ns], so that sums fit
    if (one.begin < 0 || one.end < one.begin || one.end > kMost) {
      return in_.fail("a span's times were expected: startTimeUnixNano, endTimeUnixNano");
    }
    one.is = known->second;
    spans.push_back(one);
  }

  JsonScanner in_;
  const SpanTable& table_;
  std::map<std::int64_t, SpansOfRank>& out_;
};

// Ranks lie in the mesh as Megatron-LM's parallel_state orders them: tensor first, pipeline last.
class SpanProfile {
 public:
  explicit SpanProfile(SpansOfRank rank) : rank_(std::move(rank)) {
    const Resource& of = rank_.resource;
    if (of.pipeline > 1 && of.world > 0 && of.world % of.pipeline == 0) {
      stride_ = of.world / of.pipeline;
    }
  }

  RankProfile profile() {
    std::vector<Span>& spans = rank_.spans;
    std::ranges::stable_sort(spans, {}, &Span::begin);
    build_.profile().rank = static_cast<std::int32_t>(rank_.resource.rank);
    std::int64_t forwards = 0, microbatches = 0;
    for (const Span& span : spans) {
      forwards += span.is == SpanIs::Forward ? 1 : 0;
      if (span.microbatches > 0) microbatches += std::min(span.microbatches, kMostMicrobatches);
    }
    const bool interleaved = microbatches > 0 && forwards > microbatches;
    const Span* before = nullptr;  // the forward or backward before, without a transfer behind it
    for (const Span& span : spans) {
      take(span);
      if (span.is == SpanIs::Forward || span.is == SpanIs::Backward) {
        if (before != nullptr && !interleaved) steady(*before, span);
        before = &span;
      } else if (span.is != SpanIs::Copies && span.is != SpanIs::Reduces) {
        before = nullptr;
      }
    }
    return build_.finish(0);
  }

 private:
  static constexpr std::int64_t kMostMicrobatches = 1 << 20;

  // "forward 3-7": what goes from a stage to the next, or back; empty: there is no such stage.
  std::string between(std::string_view what, std::int64_t from_this) const {
    const std::int64_t rank = rank_.resource.rank, other = rank + from_this * stride_;
    if (stride_ <= 0 || other < 0 || other >= rank_.resource.world) return {};
    return std::string(what) + " " + std::to_string(std::min(rank, other)) + "-" +
           std::to_string(std::max(rank, other));
  }
  std::string replicas() const {
    const Resource& of = rank_.resource;
    const std::int64_t tensor = of.tensor > 0 ? of.rank % of.tensor : 0;
    return "gradients " + std::to_string(stride_ > 0 ? of.rank / stride_ : 0) + " " +
           std::to_string(tensor);
  }

  void take(const Span& span) {
    Exchange one{.begin = span.begin, .end = span.end};
    switch (span.is) {
      case SpanIs::Step:
        build_.step(span.iteration >= 0 ? span.iteration : steps_, span.begin, span.end);
        ++steps_;
        return;
      case SpanIs::Pass:
        return;
      case SpanIs::Forward:
      case SpanIs::Backward:
      case SpanIs::Computes:
        return build_.computes(span.begin, span.end);
      case SpanIs::SendsForward:
        one.meeting = between("forward", 1);
        break;
      case SpanIs::ReceivesForward:
        one.meeting = between("forward", -1);
        break;
      case SpanIs::SendsBackward:
        one.meeting = between("backward", -1);
        break;
      case SpanIs::ReceivesBackward:
        one.meeting = between("backward", 1);
        break;
      case SpanIs::Reduces:
        one.meeting = replicas();
        break;
      case SpanIs::Copies:
        break;
    }
    build_.exchanges(std::move(one));
  }

  // In the steady part of 1F1B Megatron-LM sends and receives at once, without a span
  // (send_forward_recv_backward, send_backward_recv_forward): between a forward and the backward
  // behind it with the next stage, between a backward and a forward with the one before.
  void steady(const Span& before, const Span& behind) {
    if (before.is == behind.is) return;
    const std::int64_t to = before.is == SpanIs::Forward ? 1 : -1;
    std::string meeting = between("both", to);
    if (meeting.empty()) return;
    build_.exchanges({.begin = before.end, .end = behind.begin, .meeting = std::move(meeting)});
  }

  SpansOfRank rank_;
  ProfileBuilder build_;
  std::int64_t stride_ = 0;  // from a rank to the same of the next stage; 0: there is none
  std::int64_t steps_ = 0;
};

}  // namespace

Result<std::vector<RankProfile>> span_profiles(const std::vector<SpanFile>& files,
                                               const Families& families) {
  const Result<SpanTable> table = span_table();
  if (!table) return table.error();
  std::map<std::int64_t, SpansOfRank> ranks;
  std::map<std::int64_t, std::string> paths;
  for (const auto& [path, text] : files) {
    OtlpReader reader(text, table.value(), ranks);
    reader.read();
    if (!reader.scanner().ok()) {
      return Error{path + ": byte " + std::to_string(reader.scanner().offset()) + ": " +
                   reader.scanner().fault()};
    }
    for (const auto& [rank, spans] : ranks) paths.try_emplace(rank, path);
  }
  std::vector<RankProfile> out;
  for (auto& [rank, spans] : ranks) {
    RankProfile profile = SpanProfile(std::move(spans)).profile();
    if (profile.moments.empty()) continue;
    profile.path = paths[rank];
    profile.families.resize(families.size());
    out.push_back(std::move(profile));
  }
  if (out.empty()) return Error{files.front().path + ": holds no span of a training step"};
  return out;
}

}  // namespace rehearse::viz
