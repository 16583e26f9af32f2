#include "schedules/schedule_file.h"

#include "schedules/csv.h"

namespace rehearse {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;

bool same_work(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stage == b.stage && a.microbatch == b.microbatch &&
         a.slice == b.slice;
}

}  // namespace

Result<ScheduleFile> parse_schedule_file(std::string_view text, const std::string& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return json_error(path, 0, "", "the file is empty");
  if (text[first] == '{' || text[first] == '[') {
    // An array of lists may be meant as orders: the JSON reader says what is missing.
    const std::size_t second = text.find_first_not_of(" \t\r\n", first + 1);
    const bool group = text[first] == '[' && second != std::string_view::npos &&
                       text[second] >= '0' && text[second] <= '9';  // a CSV cell "[0SEND_F0 ...]"
    if (!group) return parse_schedule_json(text, path);
  }
  Result<Schedule> schedule = parse_csv(text, path);
  if (!schedule) return schedule.error();
  ScheduleFile file;
  file.schedule = std::move(schedule).value();
  return file;
}

Result<ScheduleFile> read_schedule_file(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kLargestFile);
  if (!text) return text.error();
  return parse_schedule_file(text.value(), path);
}

Schedule compute_order_of(const Schedule& schedule) {
  Schedule order;
  order.name = schedule.name;
  order.microbatches = schedule.microbatches;
  order.slices = schedule.slices;
  order.placement = schedule.placement;
  order.children = schedule.children;
  for (Row row{0}; row.value < schedule.num_rows(); ++row.value) {
    const Op* part = nullptr;
    for (const Op& op : schedule.program(row)) {
      if (!is_compute(op.kind)) continue;
      if (part != nullptr && op.segment_end >= 0 && same_work(*part, op)) continue;
      part = op.segment_end >= 0 ? &op : nullptr;
      Op whole = op;
      whole.segment_begin = 0;
      whole.segment_end = -1;
      whole.key = 0;
      order.ops.push_back(whole);
    }
    order.end_row();
  }
  return order;
}

}  // namespace rehearse
