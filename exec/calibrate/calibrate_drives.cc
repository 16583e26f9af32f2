// SPDX-License-Identifier: Apache-2.0
// Copies to and from the file in which a run keeps what goes to drives (plan.offload_to nvme),
// pages handed to the disk and forgotten behind each, as FETCH and OFFLOAD do it.
#include <algorithm>
#include <utility>

#include "exec/calibrate/calibrate_parts.h"
#include "exec/step/offload_file.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kPiece = 1 << 20, kLeast = 64;  // [B]

// Places of the file, one after the other and from the beginning again.
class RotatingFile {
 public:
  RotatingFile(const OffloadFile& file, std::int64_t bytes) : file_(file), bytes_(bytes) {}
  std::byte* next(std::int64_t bytes) {
    if (at_ + bytes > bytes_) at_ = 0;
    std::byte* const piece = file_.data() + at_;
    at_ += bytes;
    return piece;
  }

 private:
  const OffloadFile& file_;
  std::int64_t bytes_, at_ = 0;
};

}  // namespace

void measure_drives(Calibration& c) {
  const std::int64_t room = c.sizes.cold_bytes;
  Result<OffloadFile> opened = OffloadFile::open(c.options.offload_dir, room);
  if (!opened) {
    c.tables.no_drives = opened.error().message;
    return;
  }
  OffloadFile file = std::move(opened).value();
  RotatingFile places(file, room);
  const auto bytes_at = [](float* data) { return reinterpret_cast<std::byte*>(data); };
  const auto out = [&](std::int64_t bytes) {
    std::byte* const to = places.next(bytes);
    c.device.to_host(kLane, to, bytes_at(c.memory.next(bytes / 4)), bytes);
    file.release(to, bytes);
  };
  const auto in = [&](std::int64_t bytes) {
    const std::byte* const from = places.next(bytes);
    c.device.from_host(kLane, bytes_at(c.written.next(bytes / 4)), from, bytes);
    file.release(from, bytes);
  };
  const CalibrateSizes::Range& range = c.sizes.bytes;
  for (std::int64_t at = 0; at < room; at += kPiece) out(std::min(kPiece, room));  // every page
  const std::int64_t last = std::min(range.last / 2, room);
  for (std::int64_t bytes = std::max(range.first / 2, kLeast); bytes <= last;
       bytes *= range.factor) {
    c.tables.copies.push_back({true, bytes, c.watch.median_us([&] { out(bytes); }), true});
    c.tables.copies.push_back({false, bytes, c.watch.median_us([&] { in(bytes); }), true});
    c.progress("drives", static_cast<double>(bytes) / static_cast<double>(range.last));
  }
}

}  // namespace rehearse::exec
