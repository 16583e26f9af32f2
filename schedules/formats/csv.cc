// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/csv.h"

#include <algorithm>

#include "schedules/base/json_reader.h"
#include "schedules/formats/assemble.h"
#include "schedules/ir/text.h"

namespace rehearse {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The first cell of `line`, which it takes away; false where a quote is not closed.
bool take_cell(std::string_view& line, std::string_view& cell) {
  std::size_t end = line.find(',');
  const std::size_t start = std::min(line.find_first_not_of(" \t"), line.size());
  if (start < line.size() && line[start] == '"') {
    const std::size_t close = line.find('"', start + 1);
    if (close == std::string_view::npos) return false;
    cell = line.substr(start + 1, close - start - 1);
    end = line.find(',', close);
    if (!trimmed(line.substr(close + 1, std::min(end, line.size()) - close - 1)).empty()) {
      return false;
    }
  } else {
    cell = line.substr(0, end);
  }
  cell = trimmed(cell);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  return true;
}

Result<std::vector<ParsedOp>> parse_row(std::string_view line, std::int32_t& groups) {
  std::vector<ParsedOp> row;
  for (std::int32_t number = 1; !line.empty(); ++number) {
    std::string_view text;
    const std::string at = "cell " + std::to_string(number) + ": ";
    if (!take_cell(line, text)) return Error{at + "a quote is not closed, or text follows it"};
    if (text.empty()) continue;  // an idle slot
    Result<ParsedCell> cell = parse_cell(text);
    if (!cell) return Error{at + cell.error().message};
    for (const ParsedOp& op : cell.value().ops) {
      row.push_back(op);
      if (cell.value().group) row.back().op.instance = groups;
    }
    groups += cell.value().group ? 1 : 0;
  }
  return row;
}

}  // namespace

Result<Schedule> parse_csv(std::string_view text, const std::string& path) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // spreadsheets write it
  WrittenSchedule written;
  std::int32_t groups = 0;
  for (std::int32_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (trimmed(line).empty()) {
      if (trimmed(text).find_first_not_of("\r\n \t") == std::string_view::npos) break;
      return json_error(path, number, "", "an empty line: every line is the row of a rank");
    }
    Result<std::vector<ParsedOp>> row = parse_row(line, groups);
    if (!row) return json_error(path, number, "", row.error().message);
    written.rows.push_back(std::move(row).value());
  }
  Result<Schedule> schedule = assemble(written);
  if (!schedule) return json_error(path, 0, "", schedule.error().message);
  return schedule;
}

Result<std::string> to_csv(const Schedule& schedule) {
  std::string text;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    const std::size_t begin = schedule.first_op(row), end = schedule.first_op({row.value + 1});
    for (std::size_t i = begin; i < end; ++i) {
      const OpId id{static_cast<std::int32_t>(i)};
      const Op& op = schedule.ops[i];
      const bool known = op.kind == OpKind::Overlap || (op.stage && !op.bucket && !op.group);
      if (!known || !parse_op(to_text(schedule, id))) {
        return Error{to_text(schedule, id) + ": CSV has no word for it; use JSON"};
      }
      if (i != begin) text += ',';
      text += to_text(schedule, id);
    }
    text += '\n';
  }
  return text;
}

}  // namespace rehearse
