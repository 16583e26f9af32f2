// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/collectives_inside.h"
#include "viz/export/export.h"
#include "viz/export/file_writer.h"

namespace rehearse::viz {
namespace {

// RFC 4180: quoted where it holds a comma, a quote or a line break.
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out += '"';
}

}  // namespace

Result<> export_csv(const Trace& trace, const std::string& path, bool inside) {
  FileWriter out(path);
  out << "op,name,row,lane,kind,stage,microbatch,slice,match,group,bucket,bytes,start_ns,end_ns,"
         "duration_ns\n";
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const std::string row_cell = cell(row_name(trace, {row}));
    for (auto i = static_cast<std::size_t>(trace.row_begin[static_cast<std::size_t>(row)]);
         i < static_cast<std::size_t>(trace.row_begin[static_cast<std::size_t>(row) + 1]); ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      const TraceClass& c = trace.class_of(op);
      const auto number = [&](std::int64_t value, bool known) -> FileWriter& {
        out << ",";
        return known ? out << value : out;
      };
      out << op.value << "," << cell(op_name(trace, op)) << "," << row_cell << ","
          << cell(lane_name(trace, row * trace.slots + c.slot)) << "," << traits(c.kind).name;
      number(c.stage.value, c.stage.value >= 0);
      number(trace.microbatch[i], trace.microbatch[i] >= 0);
      number(c.slice, c.slice >= 0);
      number(trace.partner[i], c.kind != OpKind::Overlap && trace.partner[i] >= 0);
      out << "," << cell(trace.text(c.group)) << "," << cell(trace.text(c.bucket));
      number(c.bytes, c.bytes > 0);
      out << "," << trace.start_ns[i] << "," << trace.end_ns[i] << ","
          << trace.end_ns[i] - trace.start_ns[i] << "\n";
      if (!inside) continue;
      for (const InsideCollective& one : collectives_inside(trace, op)) {
        out << op.value << "," << cell(one.name) << "," << row_cell << ",inside,"
            << traits(one.kind).name << ",,,,," << traits(one.group).name << ",," << one.bytes
            << "," << one.begin_ns << "," << one.end_ns << "," << one.end_ns - one.begin_ns << "\n";
      }
    }
  }
  return out.finish();
}

}  // namespace rehearse::viz
