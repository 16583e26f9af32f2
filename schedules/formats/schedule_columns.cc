// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/schedule_columns.h"

#include <algorithm>

#include <array>
#include <limits>
#include <span>

namespace rehearse {
namespace {

// One number of a struct: how it is called in the file, read and written.
template <class T>
struct Field {
  std::string_view name;
  std::int64_t (*get)(const T&);
  bool (*set)(T&, std::int64_t);  // false: out of range
};

template <class Number>
bool set_number(Number& to, std::int64_t value) {
  if (value < std::numeric_limits<Number>::min() || value > std::numeric_limits<Number>::max()) {
    return false;
  }
  to = static_cast<Number>(value);
  return true;
}
template <class Tag>
bool set_id(Id<Tag>& to, std::int64_t value) {
  return value >= -1 && set_number(to.value, value);
}
template <class Enum>
bool set_enum(Enum& to, std::int64_t value, std::size_t count) {
  if (value < 0 || value >= static_cast<std::int64_t>(count)) return false;
  to = static_cast<Enum>(value);
  return true;
}
bool set_flag(bool& to, std::int64_t value) {
  to = value == 1;
  return value == 0 || value == 1;
}
template <class Enum>
std::int64_t number(Enum value) {
  return static_cast<std::int64_t>(value);
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // a PiB: sums stay far from 2^63

constexpr std::size_t kNumPayloads = 3, kNumAccesses = 4, kNumSegmentKinds = 3;

constexpr std::array<Field<Op>, 15> kOpFields{{
    {"kind", [](const Op& o) { return number(o.kind); },
     [](Op& o, std::int64_t v) { return set_enum(o.kind, v, kNumOpKinds); }},
    {"stream", [](const Op& o) { return number(o.stream); },
     [](Op& o, std::int64_t v) { return set_enum(o.stream, v, kNumStreams); }},
    {"payload", [](const Op& o) { return number(o.payload); },
     [](Op& o, std::int64_t v) { return set_enum(o.payload, v, kNumPayloads); }},
    {"slice", [](const Op& o) { return std::int64_t{o.slice}; },
     [](Op& o, std::int64_t v) { return v >= -1 && set_number(o.slice, v); }},
    {"stage", [](const Op& o) { return std::int64_t{o.stage.value}; },
     [](Op& o, std::int64_t v) { return set_id(o.stage, v); }},
    {"microbatch", [](const Op& o) { return std::int64_t{o.microbatch.value}; },
     [](Op& o, std::int64_t v) { return set_id(o.microbatch, v); }},
    {"segment_begin", [](const Op& o) { return std::int64_t{o.segment_begin}; },
     [](Op& o, std::int64_t v) { return v >= 0 && set_number(o.segment_begin, v); }},
    {"segment_end", [](const Op& o) { return std::int64_t{o.segment_end}; },
     [](Op& o, std::int64_t v) { return v >= -1 && set_number(o.segment_end, v); }},
    {"peer", [](const Op& o) { return std::int64_t{o.peer.value}; },
     [](Op& o, std::int64_t v) { return set_id(o.peer, v); }},
    {"group", [](const Op& o) { return std::int64_t{o.group.value}; },
     [](Op& o, std::int64_t v) { return set_id(o.group, v); }},
    {"match", [](const Op& o) { return std::int64_t{o.match.value}; },
     [](Op& o, std::int64_t v) { return set_id(o.match, v); }},
    {"bucket", [](const Op& o) { return std::int64_t{o.bucket.value}; },
     [](Op& o, std::int64_t v) { return set_id(o.bucket, v); }},
    {"child", [](const Op& o) { return std::int64_t{o.child}; },
     [](Op& o, std::int64_t v) { return v >= -1 && set_number(o.child, v); }},
    {"instance", [](const Op& o) { return std::int64_t{o.instance}; },
     [](Op& o, std::int64_t v) { return v >= -1 && set_number(o.instance, v); }},
    {"key", [](const Op& o) { return o.key; },
     [](Op& o, std::int64_t v) { return set_number(o.key, v); }},
}};

constexpr std::array<Field<Value>, 16> kValueFields{{
    {"kind", [](const Value& x) { return number(x.kind); },
     [](Value& x, std::int64_t v) { return set_enum(x.kind, v, kNumValueKinds); }},
    {"home", [](const Value& x) { return number(x.home); },
     [](Value& x, std::int64_t v) { return set_enum(x.home, v, kNumHomes); }},
    {"persistent", [](const Value& x) { return number(x.persistent); },
     [](Value& x, std::int64_t v) { return set_flag(x.persistent, v); }},
    {"shard", [](const Value& x) { return number(x.shard); },
     [](Value& x, std::int64_t v) { return set_flag(x.shard, v); }},
    {"row", [](const Value& x) { return std::int64_t{x.row.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.row, v); }},
    {"stage", [](const Value& x) { return std::int64_t{x.stage.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.stage, v); }},
    {"microbatch", [](const Value& x) { return std::int64_t{x.microbatch.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.microbatch, v); }},
    {"segment_begin", [](const Value& x) { return std::int64_t{x.segment_begin}; },
     [](Value& x, std::int64_t v) { return v >= 0 && set_number(x.segment_begin, v); }},
    {"segment_end", [](const Value& x) { return std::int64_t{x.segment_end}; },
     [](Value& x, std::int64_t v) { return v >= -1 && set_number(x.segment_end, v); }},
    {"bucket", [](const Value& x) { return std::int64_t{x.bucket.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.bucket, v); }},
    {"instance", [](const Value& x) { return std::int64_t{x.instance}; },
     [](Value& x, std::int64_t v) { return v >= -1 && set_number(x.instance, v); }},
    {"define", [](const Value& x) { return std::int64_t{x.define.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.define, v); }},
    {"last_use", [](const Value& x) { return std::int64_t{x.last_use.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.last_use, v); }},
    {"hold_until", [](const Value& x) { return std::int64_t{x.hold_until.value}; },
     [](Value& x, std::int64_t v) { return set_id(x.hold_until, v); }},
    {"bytes", [](const Value& x) { return x.bytes.value; },
     [](Value& x, std::int64_t v) {
       return v >= 0 && v <= kMostBytes && set_number(x.bytes.value, v);
     }},
    {"offset", [](const Value& x) { return x.offset.value; },
     [](Value& x, std::int64_t v) {
       return v >= -1 && v <= kMostBytes && set_number(x.offset.value, v);
     }},
}};

// An operand and the op that it belongs to.
struct OperandOf {
  std::int32_t op = 0;
  Operand operand;
};
constexpr std::array<Field<OperandOf>, 5> kOperandFields{{
    {"op", [](const OperandOf& x) { return std::int64_t{x.op}; },
     [](OperandOf& x, std::int64_t v) { return v >= 0 && set_number(x.op, v); }},
    {"value", [](const OperandOf& x) { return std::int64_t{x.operand.value.value}; },
     [](OperandOf& x, std::int64_t v) { return set_id(x.operand.value, v); }},
    {"version", [](const OperandOf& x) { return std::int64_t{x.operand.version}; },
     [](OperandOf& x, std::int64_t v) { return v >= 0 && set_number(x.operand.version, v); }},
    {"access", [](const OperandOf& x) { return number(x.operand.access); },
     [](OperandOf& x, std::int64_t v) { return set_enum(x.operand.access, v, kNumAccesses); }},
    {"last", [](const OperandOf& x) { return number(x.operand.last); },
     [](OperandOf& x, std::int64_t v) { return set_flag(x.operand.last, v); }},
}};

struct WaitOf {
  std::int32_t op = 0;
  OpId other;
  std::uint8_t reuse = 0;
};
constexpr std::array<Field<WaitOf>, 3> kWaitFields{{
    {"op", [](const WaitOf& x) { return std::int64_t{x.op}; },
     [](WaitOf& x, std::int64_t v) { return v >= 0 && set_number(x.op, v); }},
    {"for", [](const WaitOf& x) { return std::int64_t{x.other.value}; },
     [](WaitOf& x, std::int64_t v) { return set_id(x.other, v); }},
    {"reuse", [](const WaitOf& x) { return std::int64_t{x.reuse}; },
     [](WaitOf& x, std::int64_t v) { return v <= 1 && v >= 0 && set_number(x.reuse, v); }},
}};

// A row with the number of its ops, and its memory where that is planned.
struct RowOf {
  std::int32_t ops = 0;
  RankClassInfo info;
  std::int64_t arena = -1, live_peak = -1, host = -1;
};
constexpr std::array<Field<RowOf>, 8> kRowFields{{
    {"ops", [](const RowOf& x) { return std::int64_t{x.ops}; },
     [](RowOf& x, std::int64_t v) { return v >= 0 && set_number(x.ops, v); }},
    {"position", [](const RowOf& x) { return std::int64_t{x.info.position.value}; },
     [](RowOf& x, std::int64_t v) { return set_id(x.info.position, v); }},
    {"multiplicity", [](const RowOf& x) { return std::int64_t{x.info.multiplicity}; },
     [](RowOf& x, std::int64_t v) { return v >= 1 && set_number(x.info.multiplicity, v); }},
    {"data_begin", [](const RowOf& x) { return std::int64_t{x.info.data_begin}; },
     [](RowOf& x, std::int64_t v) { return v >= 0 && set_number(x.info.data_begin, v); }},
    {"data_end", [](const RowOf& x) { return std::int64_t{x.info.data_end}; },
     [](RowOf& x, std::int64_t v) { return v >= 0 && set_number(x.info.data_end, v); }},
    {"arena_bytes", [](const RowOf& x) { return x.arena; },
     [](RowOf& x, std::int64_t v) { return v >= -1 && set_number(x.arena, v); }},
    {"live_peak_bytes", [](const RowOf& x) { return x.live_peak; },
     [](RowOf& x, std::int64_t v) { return v >= -1 && set_number(x.live_peak, v); }},
    {"host_bytes", [](const RowOf& x) { return x.host; },
     [](RowOf& x, std::int64_t v) { return v >= -1 && set_number(x.host, v); }},
}};

constexpr std::array<Field<Bucket>, 6> kBucketFields{{
    {"position", [](const Bucket& x) { return std::int64_t{x.position.value}; },
     [](Bucket& x, std::int64_t v) { return set_id(x.position, v); }},
    {"partial", [](const Bucket& x) { return x.partial; },
     [](Bucket& x, std::int64_t v) { return v >= 0 && set_number(x.partial, v); }},
    {"elements", [](const Bucket& x) { return x.elements; },
     [](Bucket& x, std::int64_t v) { return v >= 0 && set_number(x.elements, v); }},
    {"padded", [](const Bucket& x) { return x.padded; },
     [](Bucket& x, std::int64_t v) { return v >= 0 && set_number(x.padded, v); }},
    {"tensors", [](const Bucket& x) { return std::int64_t{x.tensors}; },
     [](Bucket& x, std::int64_t v) { return v >= 0 && set_number(x.tensors, v); }},
    {"tied", [](const Bucket& x) { return number(x.tied); },
     [](Bucket& x, std::int64_t v) { return set_flag(x.tied, v); }},
}};

constexpr std::array<Field<Carried>, 2> kCarriedFields{{
    {"elements", [](const Carried& x) { return x.elements; },
     [](Carried& x, std::int64_t v) {
       return v >= 0 && v <= kMostBytes && set_number(x.elements, v);
     }},
    {"element_bytes", [](const Carried& x) { return std::int64_t{x.element_bytes}; },
     [](Carried& x, std::int64_t v) { return v >= 1 && v <= 8 && set_number(x.element_bytes, v); }},
}};

struct SegmentOf {
  Stage stage;
  SegmentInfo info;
};
constexpr std::array<Field<SegmentOf>, 3> kSegmentFields{{
    {"stage", [](const SegmentOf& x) { return std::int64_t{x.stage.value}; },
     [](SegmentOf& x, std::int64_t v) { return v >= 0 && set_id(x.stage, v); }},
    {"kind", [](const SegmentOf& x) { return number(x.info.kind); },
     [](SegmentOf& x, std::int64_t v) { return set_enum(x.info.kind, v, kNumSegmentKinds); }},
    {"layer", [](const SegmentOf& x) { return std::int64_t{x.info.layer}; },
     [](SegmentOf& x, std::int64_t v) { return v >= -1 && set_number(x.info.layer, v); }},
}};

template <class T, std::size_t N>
std::string table_text(std::string_view name, const std::array<Field<T>, N>& fields,
                       const std::vector<T>& rows) {
  std::string text = "    \"" + std::string(name) + "\": {\"fields\": [";
  for (const Field<T>& field : fields) {
    if (&field != fields.data()) text += ", ";
    text += '"' + std::string(field.name) + '"';
  }
  text += "], \"rows\": [";
  for (const T& row : rows) {
    text += &row == rows.data() ? "[" : ",[";
    for (const Field<T>& field : fields) {
      if (&field != fields.data()) text += ',';
      text += std::to_string(field.get(row));
    }
    text += ']';
  }
  return text + "]}";
}

class TableReader {
 public:
  TableReader(const JsonValue& columns, JsonReport& report) : columns_(columns), report_(report) {}

  template <class T, std::size_t N>
  std::vector<T> read(const std::string& name, const std::array<Field<T>, N>& fields) {
    std::vector<T> out;
    const std::string key = "columns." + name;
    const JsonValue* table = columns_.given(name);
    if (table == nullptr || !report_.ok()) return out;
    const JsonValue* names = table->given("fields");
    const JsonValue* rows = table->given("rows");
    if (names == nullptr || !names->is(JsonKind::Array) || rows == nullptr ||
        !rows->is(JsonKind::Array)) {
      report_.fail(table->line, key, "must have `fields` and `rows`, two lists");
      return out;
    }
    std::vector<const Field<T>*> order;
    for (const JsonValue& item : names->items) {
      order.push_back(nullptr);
      for (const Field<T>& field : fields) {
        if (item.is(JsonKind::String) && item.text == field.name) order.back() = &field;
      }
      if (order.back() == nullptr) {
        report_.fail(item.line, key + ".fields", "\"" + item.text + "\" is no field of it");
        return out;
      }
    }
    out.resize(rows->items.size());
    for (std::size_t r = 0; r < out.size() && report_.ok(); ++r) {
      const JsonValue& row = rows->items[r];
      const auto at = [&] { return key + ".rows[" + std::to_string(r) + "]"; };
      if (!row.is(JsonKind::Array) || row.items.size() != order.size()) {
        report_.fail(row.line, at(),
                     "must be a list of " + std::to_string(order.size()) + " numbers");
        break;
      }
      for (std::size_t f = 0; f < order.size() && report_.ok(); ++f) {
        const JsonValue& item = row.items[f];
        if (item.is(JsonKind::Integer) && order[f]->set(out[r], item.integer)) continue;
        report_.fail(item.line, at(), "not a possible `" + std::string(order[f]->name) + "`");
      }
    }
    return out;
  }

 private:
  const JsonValue& columns_;
  JsonReport& report_;
};

// CSR from (op, item) pairs in ascending order of op.
template <class Pair, class Take>
void cut_by_op(const std::vector<Pair>& pairs, std::size_t ops, const std::string& key,
               JsonReport& report, std::vector<std::int32_t>& begin, Take take) {
  begin.assign(1, 0);
  std::size_t next = 0;
  for (std::size_t op = 0; op < ops; ++op) {
    for (; next < pairs.size() && pairs[next].op == static_cast<std::int32_t>(op); ++next) {
      take(pairs[next]);
    }
    begin.push_back(static_cast<std::int32_t>(next));
  }
  if (next < pairs.size())
    report.fail(0, key, "does not ascend by op, or names an op that is not there");
}

std::vector<Group> read_groups(const JsonValue& columns, JsonReport& report) {
  std::vector<Group> groups;
  const JsonValue* list = columns.given("groups");
  if (list == nullptr) return groups;
  for (const JsonValue& item : list->items) {
    const std::string key = "columns.groups[" + std::to_string(groups.size()) + "]";
    const JsonValue* name = item.given("name");
    const JsonValue* size = item.given("size");
    const JsonValue* rows = item.given("rows");
    const bool whole = name != nullptr && name->is(JsonKind::String) && size != nullptr &&
                       size->is(JsonKind::Integer) && rows != nullptr && rows->is(JsonKind::Array);
    Group group;
    if (whole) group.kind = group_kind(name->text);
    if (whole && group.kind == GroupKind::Other) group.other_name = name->text;
    bool ok = whole && size->integer >= 1 && set_number(group.size, size->integer);
    for (std::size_t i = 0; ok && i < rows->items.size(); ++i) {
      RankClass row;
      ok = rows->items[i].is(JsonKind::Integer) && set_id(row, rows->items[i].integer);
      group.rows.push_back(row);
    }
    if (!ok) report.fail(item.line, key, "must have `name`, `size` and `rows`");
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string groups_text(const Schedule& s) {
  std::string text = "    \"groups\": [";
  for (const Group& group : s.groups) {
    if (&group != s.groups.data()) text += ", ";
    text += "{\"name\": " + json_quoted(group.name()) +
            ", \"size\": " + std::to_string(group.size) + ", \"rows\": [";
    for (const RankClass row : group.rows) {
      if (text.back() != '[') text += ',';
      text += std::to_string(row.value);
    }
    text += "]}";
  }
  return text + "]";
}

std::string bucket_names_text(const Schedule& s) {
  std::string text = "    \"bucket_names\": [";
  for (const Bucket& bucket : s.buckets) {
    if (&bucket != s.buckets.data()) text += ", ";
    text += json_quoted(bucket.name);
  }
  return text + "]";
}

}  // namespace

bool needs_columns(const Schedule& schedule) {
  const bool meshed = std::ranges::any_of(
      schedule.groups, [](const Group& group) { return group.kind != GroupKind::Other; });
  return !schedule.rows.empty() || !schedule.values.empty() || meshed ||
         !schedule.buckets.empty() || !schedule.segments.empty();
}

std::string columns_to_json(const Schedule& s) {
  std::vector<RowOf> rows;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    RowOf& to = rows.emplace_back();
    to.ops = static_cast<std::int32_t>(s.program(row).size());
    to.info = s.rows.empty() ? RankClassInfo{.position = {row.value}} : s.rows[row.index()];
    if (!s.arena_bytes.empty()) to.arena = s.arena_bytes[row.index()].value;
    if (!s.live_peak_bytes.empty()) to.live_peak = s.live_peak_bytes[row.index()].value;
    if (!s.host_bytes.empty()) to.host = s.host_bytes[row.index()].value;
  }
  std::vector<OperandOf> operands;
  std::vector<WaitOf> waits;
  for (std::int32_t id = 0; id < s.num_ops(); ++id) {
    for (const Operand& operand : s.operands_of({id})) operands.push_back({id, operand});
    for (const OpId& wait : s.waits_of({id})) {
      const auto at = static_cast<std::size_t>(&wait - s.waits.data());
      waits.push_back({id, wait, s.wait_is_reuse.empty() ? std::uint8_t{0} : s.wait_is_reuse[at]});
    }
  }
  std::vector<SegmentOf> segments;
  for (std::size_t stage = 0; stage < s.segments.size(); ++stage) {
    for (const SegmentInfo& info : s.segments[stage]) {
      segments.push_back({{static_cast<std::int32_t>(stage)}, info});
    }
  }
  return "{\n" + table_text("rows", kRowFields, rows) + ",\n" + groups_text(s) + ",\n" +
         bucket_names_text(s) + ",\n" + table_text("buckets", kBucketFields, s.buckets) + ",\n" +
         table_text("segments", kSegmentFields, segments) + ",\n" +
         table_text("ops", kOpFields, s.ops) + ",\n" +
         table_text("children", kOpFields, s.children) + ",\n" +
         table_text("waits", kWaitFields, waits) + ",\n" +
         table_text("values", kValueFields, s.values) + ",\n" +
         table_text("operands", kOperandFields, operands) + ",\n" +
         table_text("carried", kCarriedFields, s.carried) + "\n  }";
}

void columns_from_json(const JsonValue& columns, JsonReport& report, Schedule& s) {
  TableReader read(columns, report);
  const std::vector<RowOf> rows = read.read("rows", kRowFields);
  s.ops = read.read("ops", kOpFields);
  s.children = read.read("children", kOpFields);
  s.values = read.read("values", kValueFields);
  s.buckets = read.read("buckets", kBucketFields);
  s.carried = read.read("carried", kCarriedFields);
  const std::vector<SegmentOf> segments = read.read("segments", kSegmentFields);
  const std::vector<OperandOf> operands = read.read("operands", kOperandFields);
  const std::vector<WaitOf> waits = read.read("waits", kWaitFields);
  if (!report.ok()) return;
  s.groups = read_groups(columns, report);
  const JsonValue* names = columns.given("bucket_names");
  for (std::size_t b = 0; names != nullptr && b < s.buckets.size(); ++b) {
    if (b < names->items.size()) s.buckets[b].name = names->items[b].text;
  }
  s.row_begin.assign(1, 0);
  s.rows.clear();
  std::int64_t ops = 0;
  for (const RowOf& row : rows) {
    ops += row.ops;
    if (ops > static_cast<std::int64_t>(s.ops.size())) break;
    s.row_begin.push_back(static_cast<std::int32_t>(ops));
    s.rows.push_back(row.info);
    if (row.arena >= 0) s.arena_bytes.push_back({row.arena});
    if (row.live_peak >= 0) s.live_peak_bytes.push_back({row.live_peak});
    if (row.host >= 0) s.host_bytes.push_back({row.host});
  }
  if (ops != static_cast<std::int64_t>(s.ops.size())) {
    report.fail(
        columns.line, "columns.rows",
        "counts " + std::to_string(ops) + " ops, `ops` has " + std::to_string(s.ops.size()));
    return;
  }
  for (const SegmentOf& segment : segments) {
    if (segment.stage.value >= s.placement.stages()) {
      return report.fail(columns.line, "columns.segments", "names a stage that is not placed");
    }
    s.segments.resize(static_cast<std::size_t>(s.placement.stages()));
    s.segments[segment.stage.index()].push_back(segment.info);
  }
  // Not said of a row: as far as its values on drives go.
  for (const Value& value : s.values) {
    if (value.home != Home::Nvme || !value.row || value.row.value >= s.num_rows()) continue;
    s.nvme_bytes.resize(static_cast<std::size_t>(s.num_rows()));
    Bytes& bytes = s.nvme_bytes[value.row.index()];
    bytes.value = std::max(bytes.value, value.offset.value + value.bytes.value);
  }
  cut_by_op(operands, s.ops.size(), "columns.operands", report, s.operand_begin,
            [&](const OperandOf& item) { s.operands.push_back(item.operand); });
  cut_by_op(waits, s.ops.size(), "columns.waits", report, s.wait_begin, [&](const WaitOf& item) {
    s.waits.push_back(item.other);
    s.wait_is_reuse.push_back(item.reuse);
  });
}

}  // namespace rehearse
