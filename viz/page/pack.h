// SPDX-License-Identifier: Apache-2.0
// A trace file's bytes, rearranged so that deflate makes a tenth of them and less: neighbouring
// rows differ little, so every word is stored as its difference to the row before (an op's end: to
// its start), and bytes of equal weight stand together. Nothing is lost; the size is nearly the
// same.
//
//   u64 size of the file | header and table of sections as they are | per section, per word of its
//   elements, per byte of the word: that byte of every row
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/base/result.h"
#include "viz/picture/charts/waterfall.h"

namespace rehearse::viz {

// REQUIRES: what trace_bytes gives.
std::string pack_trace(std::span<const std::byte> file);

// The file's bytes into `file`, of unpacked_bytes(packed) bytes. Error: they are cut short.
Result<> unpack_trace(std::span<const std::byte> packed, std::span<std::byte> file);
std::size_t unpacked_bytes(std::span<const std::byte> packed);  // 0: nothing of this kind

// A waterfall as lines: title, from, to, the first total [ns]; then a difference [ns] and its cause
// each. Nothing where the lines are others.
std::string pack_waterfall(const Waterfall& waterfall);
std::optional<Waterfall> unpack_waterfall(std::string_view lines);

}  // namespace rehearse::viz
