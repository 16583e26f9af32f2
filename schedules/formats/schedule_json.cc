// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/schedule_json.h"

#include <algorithm>
#include <array>
#include <utility>

#include "schedules/formats/assemble.h"
#include "schedules/formats/schedule_columns.h"
#include "schedules/ir/exchange_parts.h"
#include "schedules/ir/payload.h"
#include "schedules/ir/text.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/plan_size.h"
#include "schedules/transfers/link_transfers.h"

namespace rehearse {
namespace {

constexpr std::int64_t kLargestJson = std::int64_t{256} << 20;
constexpr std::int64_t kLargestCount = 99'999'999;
constexpr std::int64_t kLargestArray = std::int64_t{1} << 40;  // [B]

constexpr std::array<std::string_view, 20> kKeys{
    "format",     "version",       "generator",  "hash",      "microbatches",
    "slices",     "stage_to_rank", "placements", "orders",    "orders_with_comms",
    "schema",     "schedule",      "p",          "m",         "v",
    "num_stages", "seq_splits",    "columns",    "positions", "groups"};

class FileReader {
 public:
  FileReader(const JsonValue& document, const std::string& path)
      : document_(document), report_(path) {}

  Result<ScheduleFile> read() {
    if (!document_.is(JsonKind::Object)) {
      report_.fail(document_.line, "", "a schedule file is a JSON object with `orders`");
      return report_.error();
    }
    check_keys();
    check_version();
    WrittenSchedule written;
    written.name = text_of("generator", text_of("schedule", ""));
    written.microbatches = count_of("microbatches", count_of("m", 0));
    written.slices = count_of("slices", count_of("seq_splits", 0), 127);
    if (document_.given("columns") == nullptr) {
      read_orders(written);
    } else {
      read_row_count(written);
    }
    read_placement(written);
    read_groups(written);
    if (!report_.ok()) return report_.error();
    const std::int32_t positions = count_of("p", static_cast<std::int32_t>(written.rows.size()));
    if (positions != static_cast<std::int32_t>(written.rows.size())) {
      report_.fail(line_of("p"), "p",
                   std::to_string(positions) + " ranks, but `" + orders_key_ + "` has " +
                       std::to_string(written.rows.size()));
      return report_.error();
    }
    if (const JsonValue* columns = document_.given("columns"); columns != nullptr) {
      return with_columns(*columns, written);
    }
    Result<Schedule> schedule = assemble(written);
    if (!schedule) {
      report_.fail(line_of(orders_key_), orders_key_, schedule.error().message);
      return report_.error();
    }
    return finished(std::move(schedule).value());
  }

 private:
  Result<ScheduleFile> finished(Schedule schedule) {
    ScheduleFile file{std::move(schedule), text_of("hash", ""), true, note_};
    if (!report_.ok()) return report_.error();
    if (!file.declared_hash.empty()) {
      file.hash_matches = content_hash(file.schedule) == file.declared_hash;
    }
    return file;
  }

  // A full L1: the columns are the schedule, `orders` is what people read of it.
  Result<ScheduleFile> with_columns(const JsonValue& columns, const WrittenSchedule& written) {
    if (!written.placement || written.microbatches == 0) {
      report_.fail(columns.line, "columns", "needs `microbatches` and `stage_to_rank` beside it");
      return report_.error();
    }
    Schedule schedule;
    schedule.level = Level::Full;
    schedule.name = written.name;
    schedule.microbatches = written.microbatches;
    schedule.slices = std::max(written.slices, 1);
    schedule.placement = *written.placement;
    columns_from_json(columns, report_, schedule);
    if (!report_.ok()) return report_.error();
    const std::string sparse =
        too_few_ops(schedule.num_ops(), schedule.placement.stages(), schedule.microbatches,
                    static_cast<std::int64_t>(schedule.slices) * schedule.num_rows());
    if (!sparse.empty()) {
      report_.fail(columns.line, "columns", sparse);
      return report_.error();
    }
    const Validation validation = validate(schedule, {.most = 1});
    if (!validation.applied[1]) {  // V1 found an index that leads nowhere
      report_.fail(columns.line, "columns", validation.violations.front().message);
      return report_.error();
    }
    compare_with_orders(schedule);
    if (!report_.ok()) return report_.error();
    return finished(std::move(schedule));
  }

  void compare_with_orders(const Schedule& schedule) {
    const JsonValue& orders = *document_.given("orders");
    for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
      const std::string key = "orders[" + std::to_string(row.value) + "]";
      const std::size_t begin = schedule.first_op(row);
      const std::size_t count = schedule.program(row).size();
      const bool there =
          row.index() < orders.items.size() && orders.items[row.index()].items.size() == count;
      if (!there) {
        return report_.fail(orders.line, key,
                            "does not list the " + std::to_string(count) + " ops of `columns`");
      }
      for (std::size_t i = 0; i < count; ++i) {
        const JsonValue& item = orders.items[row.index()].items[i];
        const OpId id{static_cast<std::int32_t>(begin + i)};
        if (item.is(JsonKind::String) && item.text == to_text(schedule, id)) continue;
        return report_.fail(item.line, key + "[" + std::to_string(i) + "]",
                            "is " + to_text(schedule, id) +
                                " in `columns`: remove `columns` to change the order by hand");
      }
    }
  }

  std::int32_t line_of(const std::string& key) const {
    const JsonMember* member = document_.find(key);
    return member == nullptr ? 0 : member->line;
  }

  void check_keys() {
    for (const JsonMember& member : document_.members) {
      if (std::ranges::find(kKeys, member.key) != kKeys.end()) continue;
      const std::string_view meant = nearest(member.key, kKeys);
      const std::int32_t edits = meant.size() < 6 ? 1 : 2;
      const bool close = meant.size() > 3 && edit_distance(member.key, meant) <= edits;
      if (close && document_.find(meant) == nullptr) {
        report_.fail(member.line, member.key,
                     "unknown key; is `" + std::string(meant) + "` meant?");
      }
    }
  }

  void check_version() {
    const std::string format = text_of("format", "rehearse.schedule");
    if (format != "rehearse.schedule") {
      report_.fail(line_of("format"), "format", "\"" + format + "\" is not \"rehearse.schedule\"");
    }
    const std::string version = text_of("version", "1.0");
    if (version != "1" && !version.starts_with("1.")) {
      report_.fail(line_of("version"), "version",
                   "\"" + version + "\" is not a version that is known here (1.x)");
    }
  }

  std::string text_of(const std::string& key, std::string fallback) {
    const JsonValue* value = document_.given(key);
    if (value == nullptr) return fallback;
    if (!value->is(JsonKind::String)) report_.fail(value->line, key, "must be a string");
    return value->text;
  }
  std::int32_t count_of(const std::string& key, std::int32_t fallback,
                        std::int64_t largest = kLargestCount) {
    const JsonValue* value = document_.given(key);
    if (value == nullptr) return fallback;
    if (!value->is(JsonKind::Integer) || value->integer < 1 || value->integer > largest) {
      report_.fail(value->line, key, "must be a whole number from 1 to " + std::to_string(largest));
      return fallback;
    }
    return static_cast<std::int32_t>(value->integer);
  }

  void read_row_count(WrittenSchedule& written) {
    orders_key_ = "orders";
    const JsonValue* orders = document_.given("orders");
    if (orders == nullptr || !orders->is(JsonKind::Array) || orders->items.empty()) {
      return report_.fail(document_.line, "orders", "must list every rank's ops beside `columns`");
    }
    // Several rows may stand for replicas of one position: ranks are positions.
    const JsonValue* positions = document_.given("positions");
    const std::int32_t count =
        count_of("positions", static_cast<std::int32_t>(orders->items.size()));
    if (positions != nullptr && count > static_cast<std::int32_t>(orders->items.size())) {
      return report_.fail(positions->line, "positions", "is more than there are rows");
    }
    written.rows.resize(static_cast<std::size_t>(count));
  }

  void read_orders(WrittenSchedule& written) {
    const JsonValue* orders = document_.given("orders_with_comms");
    const JsonValue* compute = document_.given("orders");
    if (orders != nullptr && compute != nullptr && other_notation(*orders)) {
      note_ = "`orders_with_comms` is in another notation: `orders` is read";
      orders = nullptr;
    }
    orders_key_ = orders != nullptr ? "orders_with_comms" : "orders";
    if (orders == nullptr) orders = compute;
    if (orders == nullptr) {
      return report_.fail(document_.line, "orders", "is missing: a list of ops for every rank");
    }
    if (!orders->is(JsonKind::Array) || orders->items.empty()) {
      return report_.fail(orders->line, orders_key_, "must be a list with a list for every rank");
    }
    for (const JsonValue& row : orders->items) {
      const std::string key = orders_key_ + "[" + std::to_string(written.rows.size()) + "]";
      written.rows.emplace_back();
      if (!row.is(JsonKind::Array)) {
        return report_.fail(row.line, key, "must be a list of ops, such as \"0F0\"");
      }
      for (std::size_t i = 0; i < row.items.size() && report_.ok(); ++i) {
        read_op(row.items[i], key, i, written.rows.back());
      }
    }
  }

  // Some projects list transfers in words of their own (ColossalAI: "F.c0.mb0").
  static bool other_notation(const JsonValue& orders) {
    if (!orders.is(JsonKind::Array) || orders.items.empty()) return false;
    const JsonValue& row = orders.items.front();
    if (!row.is(JsonKind::Array) || row.items.empty()) return false;
    const JsonValue& op = row.items.front();
    return op.is(JsonKind::String) && !op.text.empty() && !parse_cell(op.text);
  }

  void read_op(const JsonValue& item, const std::string& row_key, std::size_t number,
               std::vector<ParsedOp>& row) {
    const auto key = [&] { return row_key + "[" + std::to_string(number) + "]"; };
    if (item.is(JsonKind::Null)) return;  // an idle slot
    const JsonValue* named = item.is(JsonKind::Object) ? item.given("op") : &item;
    if (named == nullptr || !named->is(JsonKind::String)) {
      return report_.fail(item.line, key(), "must be an op, such as \"0F0\"");
    }
    if (named->text.empty()) return;  // torch's idle slot
    const Result<ParsedCell> cell = parse_cell(named->text);
    if (!cell) {
      return report_.fail(item.line, key(), cell.error().message);
    }
    for (const ParsedOp& op : cell.value().ops) {
      row.push_back(op);
      if (item.is(JsonKind::Object)) read_exchange(item, key(), row.back());
      if (cell.value().group) row.back().op.instance = groups_;
    }
    groups_ += cell.value().group ? 1 : 0;
  }

  // What stands beside the op in its object.
  void read_exchange(const JsonValue& item, const std::string& key, ParsedOp& parsed) {
    for (const JsonMember& member : item.members) {
      if (member.key == "op") continue;
      const JsonValue& value = member.value;
      const std::int64_t least = member.key == "bytes" ? 1 : 0;
      if (parsed.group.empty() || (member.key != "bytes" && member.key != "root")) {
        return report_.fail(member.line, key + "." + member.key,
                            "only collectives of own groups have `bytes` and `root`");
      }
      if (!value.is(JsonKind::Integer) || value.integer < least || value.integer > kLargestArray) {
        return report_.fail(member.line, key + "." + member.key,
                            "must be a whole number from " + std::to_string(least) + " to " +
                                std::to_string(kLargestArray));
      }
      if (least == 1) {
        parsed.bytes = value.integer;
      } else {
        parsed.op.peer = {
            static_cast<std::int32_t>(std::min<std::int64_t>(value.integer, 1 << 30))};
      }
    }
  }

  void read_groups(WrittenSchedule& written) {
    const JsonValue* groups = document_.given("groups");
    if (groups == nullptr || document_.given("columns") != nullptr) return;
    if (!groups->is(JsonKind::Object)) {
      return report_.fail(groups->line, "groups",
                          "must be an object, such as {\"pairs\": [[0, 1], [2, 3]]}");
    }
    for (const JsonMember& member : groups->members) {
      const std::string key = "groups." + member.key;
      if (!is_group_name(member.key)) {
        return report_.fail(member.line, "groups",
                            "a name has letters, digits, _ and -, at most 32 of them");
      }
      if (group_kind(member.key) != GroupKind::Other) {
        return report_.fail(member.line, key,
                            "is a group of the mesh: an own one needs another name");
      }
      written.groups.push_back({.name = member.key});
      read_instances(member.value, key, written.rows.size(), written.groups.back());
      if (!report_.ok()) return;
    }
  }

  void read_instances(const JsonValue& list, const std::string& key, std::size_t ranks,
                      WrittenGroup& group) {
    std::vector<bool> taken(ranks, false);
    const std::string what = "must list groups of at least 2 ranks, all of as many";
    if (!list.is(JsonKind::Array) || list.items.empty()) return report_.fail(list.line, key, what);
    for (const JsonValue& item : list.items) {
      const std::string at = key + "[" + std::to_string(group.instances.size()) + "]";
      const std::size_t size =
          group.instances.empty() ? item.items.size() : group.instances.front().size();
      if (!item.is(JsonKind::Array) || item.items.size() < 2 || item.items.size() != size) {
        return report_.fail(item.line, at, what);
      }
      group.instances.push_back(stage_map(item, at, ranks));
      if (!report_.ok()) return;
      for (const Position rank : group.instances.back()) {
        if (taken[rank.index()]) {
          return report_.fail(item.line, at, "lists rank " + std::to_string(rank.value) + " twice");
        }
        taken[rank.index()] = true;
      }
    }
  }

  // A list of ranks, one per stage.
  std::vector<Position> stage_map(const JsonValue& list, const std::string& key,
                                  std::size_t ranks) {
    std::vector<Position> map;
    if (!list.is(JsonKind::Array) || list.items.empty()) {
      report_.fail(list.line, key, "must be a list with the rank of every stage");
      return map;
    }
    for (const JsonValue& item : list.items) {
      if (!item.is(JsonKind::Integer) || item.integer < 0 ||
          item.integer >= static_cast<std::int64_t>(ranks)) {
        report_.fail(item.line, key + "[" + std::to_string(map.size()) + "]",
                     "must be a rank from 0 to " + std::to_string(ranks - 1));
        return map;
      }
      map.push_back({static_cast<std::int32_t>(item.integer)});
    }
    return map;
  }

  void read_placement(WrittenSchedule& written) {
    if (!report_.ok()) return;
    Placement placement{.positions = static_cast<std::int32_t>(written.rows.size())};
    if (const JsonValue* map = document_.given("stage_to_rank"); map != nullptr) {
      placement.down = stage_map(*map, "stage_to_rank", written.rows.size());
    } else if (const JsonValue* list = document_.given("placements"); list != nullptr) {
      read_two_ways(*list, placement);
    } else {
      return;
    }
    const auto stages = static_cast<std::int32_t>(placement.down.size());
    if (count_of("num_stages", stages) != stages) {
      report_.fail(line_of("num_stages"), "num_stages",
                   "is not the number of stages that are placed, " + std::to_string(stages));
    }
    written.placement = std::move(placement);
  }

  void read_two_ways(const JsonValue& list, Placement& placement) {
    const auto ranks = static_cast<std::size_t>(placement.positions);
    if (!list.is(JsonKind::Array) || list.items.empty() || list.items.size() > 2) {
      return report_.fail(list.line, "placements", "must be a list of one or two placements");
    }
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const JsonValue& item = list.items[i];
      const std::string key = "placements[" + std::to_string(i) + "]";
      const JsonValue* map = item.given("stage_to_rank");
      const JsonValue* range = item.given("microbatches");
      if (map == nullptr || range == nullptr) {
        return report_.fail(item.line, key, "needs `microbatches` and `stage_to_rank`");
      }
      const bool whole = range->is(JsonKind::Array) && range->items.size() == 2 &&
                         range->items[0].is(JsonKind::Integer) && range->items[0].integer >= 0 &&
                         range->items[0].integer <= kLargestCount;
      if (!whole || (i == 0) != (range->items[0].integer == 0)) {
        return report_.fail(range->line, key + ".microbatches",
                            "must be [first, last]; the first placement begins with 0");
      }
      std::vector<Position>& target = i == 0 ? placement.down : placement.up;
      target = stage_map(*map, key + ".stage_to_rank", ranks);
      if (i == 1) placement.first_up = static_cast<std::int32_t>(range->items[0].integer);
      if (i == 1 && report_.ok() && placement.up.size() != placement.down.size()) {
        report_.fail(map->line, key + ".stage_to_rank", "places another number of stages");
      }
    }
  }

  const JsonValue& document_;
  JsonReport report_;
  std::string orders_key_, note_;
  std::int32_t groups_ = 0;
};

std::string map_text(const std::vector<Position>& map) {
  std::string text = "[";
  for (const Position position : map) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(position.value);
  }
  return text + "]";
}

std::string placement_text(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  if (placement.up.empty()) return "  \"stage_to_rank\": " + map_text(placement.down) + ",\n";
  const auto part = [](std::int32_t first, std::int32_t last, const std::vector<Position>& map) {
    return "{\"microbatches\": [" + std::to_string(first) + ", " + std::to_string(last) +
           "], \"stage_to_rank\": " + map_text(map) + "}";
  };
  return "  \"placements\": [" + part(0, placement.first_up - 1, placement.down) + ",\n    " +
         part(placement.first_up, schedule.microbatches - 1, placement.up) + "],\n";
}

std::string own_groups_text(const Schedule& schedule) {
  std::string text;
  for (const Group& group : schedule.groups) {
    text += (text.empty() ? "  \"groups\": {" : ", ") + json_quoted(group.name()) + ": [";
    const auto size = static_cast<std::size_t>(group.size);
    for (std::size_t i = 0; i < group.rows.size(); ++i) {
      text += i % size == 0 ? (i == 0 ? "[" : "], [") : ", ";
      text += std::to_string(group.rows[i].value);
    }
    text += "]]";
  }
  return text.empty() ? text : text + "},\n";
}

// An exchange of an own group, with what its text leaves out.
std::string exchange_text(const Schedule& schedule, std::size_t i) {
  const OpId id{static_cast<std::int32_t>(i)};
  const Op& op = schedule.ops[i];
  std::string text = "{\"op\": \"" + to_text(schedule, id) +
                     "\", \"bytes\": " + std::to_string(payload_of(schedule, id).bytes());
  if (has_root(op.kind)) text += ", \"root\": " + std::to_string(op.peer.value);
  return text + "}";
}

// One cell; transfers of one group in one pair of brackets. `i` ends at its last op.
std::string cell_text(const Schedule& schedule, std::size_t& i, std::size_t end) {
  const auto is_end = [](const Op& op) {
    return op.kind == OpKind::Send || op.kind == OpKind::Recv;
  };
  const auto text = [&](std::size_t at) {
    const Op& end_or_op = schedule.ops[at];
    std::string written = to_text(schedule, OpId{static_cast<std::int32_t>(at)});
    if (!is_end(end_or_op) || !end_or_op.peer) return written;
    if (end_or_op.peer == other_end(schedule, end_or_op)) return written;
    return written + (end_or_op.kind == OpKind::Send ? ">r" : "<r") +
           std::to_string(end_or_op.peer.value);
  };
  const Op& op = schedule.ops[i];
  if (!is_end(op) || op.instance < 0) return text(i);
  std::string cell = "[" + text(i);
  while (i + 1 < end && schedule.ops[i + 1].instance == op.instance &&
         is_end(schedule.ops[i + 1])) {
    cell += " " + text(++i);
  }
  return cell + "]";
}

}  // namespace

Result<JsonValue> parse_schedule_document(std::string_view text, const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 28;
  const auto there = static_cast<std::size_t>(memory_there()) / 8 / sizeof(JsonValue);
  return parse_json(text, path, 1, std::clamp(there, kMostValues, kMost));
}

Result<ScheduleFile> schedule_from_json(const JsonValue& document, const std::string& path) {
  return FileReader(document, path).read();
}

Result<ScheduleFile> parse_schedule_json(std::string_view text, const std::string& path) {
  const Result<JsonValue> document = parse_schedule_document(text, path);
  if (!document) return document.error();
  return schedule_from_json(document.value(), path);
}

Result<ScheduleFile> read_schedule_json(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kLargestJson);
  if (!text) return text.error();
  return parse_schedule_json(text.value(), path);
}

std::string to_schedule_json(const Schedule& schedule) {
  const bool columns = needs_columns(schedule);
  std::string text = "{\n  \"format\": \"rehearse.schedule\", \"version\": \"1.0\",\n";
  text += "  \"generator\": " + json_quoted(schedule.name) + ",\n";
  text += "  \"hash\": \"" + content_hash(schedule) + "\",\n";
  text += "  \"microbatches\": " + std::to_string(schedule.microbatches) +
          ", \"slices\": " + std::to_string(schedule.slices) + ",\n" + placement_text(schedule);
  if (!columns) text += own_groups_text(schedule);
  if (columns) text += "  \"positions\": " + std::to_string(schedule.placement.positions) + ",\n";
  text += "  \"orders\": [";
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    text += row.value == 0 ? "\n    [" : ",\n    [";
    const std::size_t begin = schedule.first_op(row), end = schedule.first_op({row.value + 1});
    for (std::size_t i = begin; i < end; ++i) {
      if (i != begin) text += ", ";
      const OpId id{static_cast<std::int32_t>(i)};
      if (!columns && schedule.is_on(schedule.ops[i], GroupKind::Other)) {
        text += exchange_text(schedule, i);
        continue;
      }
      text += '"' + (columns ? to_text(schedule, id) : cell_text(schedule, i, end)) + '"';
    }
    text += "]";
  }
  text += "\n  ]";
  if (columns) text += ",\n  \"columns\": " + columns_to_json(schedule);
  return text + "\n}\n";
}

}  // namespace rehearse
