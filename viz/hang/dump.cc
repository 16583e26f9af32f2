// SPDX-License-Identifier: Apache-2.0
#include "viz/hang/dump.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace rehearse::viz {
namespace {

constexpr std::int32_t kMostRanks = 1 << 20;

std::string text_of(const JsonValue* value) {
  return value != nullptr && value->is(JsonKind::String) ? value->text : std::string();
}
std::int64_t integer_of(const JsonValue* value, std::int64_t otherwise) {
  return value != nullptr && value->is(JsonKind::Integer) ? value->integer : otherwise;
}

// The numbers of "[0, 1, 2]", as torch writes a group's ranks, or of a list.
std::vector<std::int32_t> ranks_of(const JsonValue* value) {
  std::vector<std::int32_t> ranks;
  if (value == nullptr) return ranks;
  for (const JsonValue& item : value->items) {
    if (item.is(JsonKind::Integer) && item.integer >= 0 && item.integer < kMostRanks) {
      ranks.push_back(static_cast<std::int32_t>(item.integer));
    }
  }
  const std::string& text = value->text;
  for (std::size_t at = 0; at < text.size();) {
    std::int32_t rank = -1;
    const auto [end, fault] = std::from_chars(text.data() + at, text.data() + text.size(), rank);
    if (fault == std::errc() && rank >= 0 && rank < kMostRanks) ranks.push_back(rank);
    at = fault == std::errc() ? static_cast<std::size_t>(end - text.data()) : at + 1;
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// "4x16 float32" of every tensor.
std::vector<std::string> shapes_of(const JsonValue* sizes, const JsonValue* types) {
  std::vector<std::string> shapes;
  if (sizes == nullptr) return shapes;
  for (std::size_t i = 0; i < sizes->items.size(); ++i) {
    std::string shape;
    for (const JsonValue& size : sizes->items[i].items) {
      shape += (shape.empty() ? "" : "x") + std::to_string(size.integer);
    }
    const bool typed = types != nullptr && i < types->items.size();
    shapes.push_back(shape + (typed ? " " + types->items[i].text : ""));
  }
  return shapes;
}

// The innermost frame that is not torch's own.
std::string place_of(const JsonValue* frames) {
  if (frames == nullptr) return {};
  for (const JsonValue& frame : frames->items) {
    const std::string file = text_of(frame.given("filename"));
    if (file.empty() || file.find("/torch/") != std::string::npos) continue;
    return file.substr(file.find_last_of('/') + 1) + ":" +
           std::to_string(integer_of(frame.given("line"), 0)) + " " + text_of(frame.given("name"));
  }
  return {};
}

// "nccl:send 0->1" is a transfer with rank 1 of the group.
std::int32_t peer_of(std::string_view name) {
  const std::size_t arrow = std::min(name.find("->"), name.find("<-"));
  if (arrow == std::string_view::npos) return -1;
  std::int32_t peer = -1;
  std::from_chars(name.data() + arrow + 2, name.data() + name.size(), peer);
  return peer;
}

class Reading {
 public:
  Reading(const JsonValue& document, const std::string& path) : in_(document), faults_(path) {}

  Result<Dump> read() {
    dump_.rank = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        integer_of(in_.given("rank"), number_of(faults_.path())), -1, kMostRanks));
    if (dump_.rank < 0) fail(in_, "rank", "is missing, and the file's name ends in no number");
    if (const JsonValue* groups = in_.given("pg_config")) {
      for (const JsonMember& group : groups->members) {
        dump_.groups.push_back({name_of_group(group.value), ranks_of(group.value.given("ranks"))});
      }
    }
    const JsonValue* entries = in_.given("entries");
    if (entries == nullptr || !entries->is(JsonKind::Array)) {
      fail(in_, "entries", "is missing: a list of what the rank called");
    }
    for (std::size_t i = 0; faults_.ok() && i < entries->items.size(); ++i) {
      add_call(entries->items[i], static_cast<std::int64_t>(i));
    }
    if (!faults_.ok()) return faults_.error();
    std::ranges::stable_sort(dump_.calls, {}, &Call::record);
    return std::move(dump_);
  }

 private:
  static std::int64_t number_of(const std::string& path) {
    std::string name = path.substr(path.find_last_of('/') + 1);
    name = name.substr(0, name.find('.'));
    std::size_t from = name.size();
    while (from > 0 && std::isdigit(static_cast<unsigned char>(name[from - 1])) != 0) --from;
    std::int64_t number = -1;
    std::from_chars(name.data() + from, name.data() + name.size(), number);
    return number;
  }
  static std::string name_of_group(const JsonValue& group) {
    const std::string about = text_of(group.given("desc"));
    return about.empty() || about == "undefined" ? text_of(group.given("name")) : about;
  }
  void fail(const JsonValue& at, const char* key, const std::string& what) {
    faults_.fail(at.line, key, what);
  }

  void add_call(const JsonValue& entry, std::int64_t number) {
    const std::string name = text_of(entry.given("profiling_name"));
    if (name.empty()) return fail(entry, "entries.profiling_name", "is missing");
    Call call{.record = integer_of(entry.given("record_id"), number)};
    if (const JsonValue* group = entry.given("process_group"); group != nullptr) {
      const std::size_t count = group->items.size();
      if (count > 0) call.group = group->items.back().text;
      if (count > 0 && (call.group.empty() || call.group == "undefined")) {
        call.group = group->items.front().text;
      }
    }
    const std::size_t after = name.find(':');
    call.op = name.substr(after == std::string::npos ? 0 : after + 1);
    const std::int32_t local = peer_of(call.op);
    call.op = call.op.substr(0, call.op.find(' '));
    if (local >= 0) call.peer = rank_in(call.group, local);
    call.sequence = integer_of(entry.given("collective_seq_id"), 0);
    call.shapes = shapes_of(entry.given("input_sizes"), entry.given("input_dtypes"));
    const std::string state = text_of(entry.given("state"));
    // Gloo's stay "scheduled"; what is over is retired.
    const JsonValue* retired = entry.given("retired");
    const bool over = state == "completed" || (retired != nullptr && retired->boolean) ||
                      integer_of(entry.given("time_discovered_completed_ns"), 0) > 0;
    call.state = over                 ? CallState::Completed
                 : state == "started" ? CallState::Started
                                      : CallState::Scheduled;
    call.place = place_of(entry.given("frames"));
    dump_.calls.push_back(std::move(call));
  }

  // A group counts its own ranks.
  std::int32_t rank_in(const std::string& group, std::int32_t local) const {
    const auto found = std::ranges::find(dump_.groups, group, &DumpedGroup::name);
    if (found == dump_.groups.end() || local >= std::ssize(found->ranks)) return local;
    return found->ranks[static_cast<std::size_t>(local)];
  }

  const JsonValue& in_;
  JsonReport faults_;
  Dump dump_;
};

bool is_one(const JsonValue& document) {
  return document.is(JsonKind::Object) && document.find("entries") != nullptr;
}

}  // namespace

bool is_dump(const JsonValue& document) {
  if (document.is(JsonKind::Array)) {
    return !document.items.empty() && std::ranges::all_of(document.items, is_one);
  }
  return is_one(document);
}

Result<std::vector<Dump>> read_dumps(const JsonValue& document, const std::string& path) {
  std::vector<Dump> dumps;
  const auto add = [&](const JsonValue& one) -> Result<> {
    Result<Dump> dump = Reading(one, path).read();
    if (!dump) return dump.error();
    dumps.push_back(std::move(dump).value());
    return {};
  };
  if (!document.is(JsonKind::Array)) {
    if (const Result<> added = add(document); !added) return added.error();
    return dumps;
  }
  for (const JsonValue& one : document.items) {
    if (const Result<> added = add(one); !added) return added.error();
  }
  return dumps;
}

}  // namespace rehearse::viz
