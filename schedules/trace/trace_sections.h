// SPDX-License-Identifier: Apache-2.0
// What a trace file is made of; for its reader and its writer alone.
//
//   header (64 B) | Section[num_sections] | sections, each at a multiple of 64 B
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "schedules/trace/trace.h"

namespace rehearse::trace_file {

static_assert(std::endian::native == std::endian::little, "columns are stored as they lie");

constexpr std::array<char, 8> kMagic{'r', 'e', 'h', 't', 'r', 'a', 'c', 'e'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kAlignment = 64;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t num_sections = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t num_ops = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int32_t microbatches = 0, slots = 0;
  TraceLabel label{};
  std::uint8_t reserved[7] = {};
};
static_assert(sizeof(Header) == 64);

// On disk: do not change or reorder; a new section is a new number.
enum class SectionId : std::uint32_t {
  Strings = 1,
  Rows,
  RowBegin,
  Lanes,
  Classes,
  Start,
  End,
  OpClass,
  Microbatch,
  Partner,
  CostLevel,
  ExpectedStart,
  Communicating,
  IdleBegin,
  Idle,
  MemoryBegin,
  MemoryTime,
  MemoryBytes,
  Links,
  LinkBegin,
  LinkSamples,
  WaitBegin,
  Waits,
  OperandBegin,
  Operands,
  Values,
  RunBegin,
  Runs,
  Bodies,
  Nodes,
  Resident,
  RowClass,
  ExpertShape,
  ExpertLayers,
  ExpertSteps,
  ExpertRows,
  Meetings,
};

struct Section {
  SectionId id{};
  std::uint32_t element_bytes = 0;
  std::uint64_t offset = 0, count = 0;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Section) == 32);

// Calls visit(id, column) for every column of the trace, in file order: reader and writer agree.
template <class SomeTrace, class Visit>
void for_each_column(SomeTrace& trace, Visit visit) {
  visit(SectionId::Rows, trace.rows);
  visit(SectionId::RowBegin, trace.row_begin);
  visit(SectionId::Lanes, trace.lanes);
  visit(SectionId::Classes, trace.classes);
  visit(SectionId::Start, trace.start_ns);
  visit(SectionId::End, trace.end_ns);
  visit(SectionId::OpClass, trace.op_class);
  visit(SectionId::Microbatch, trace.microbatch);
  visit(SectionId::Partner, trace.partner);
  visit(SectionId::CostLevel, trace.cost_level);
  visit(SectionId::ExpectedStart, trace.expected_start_ns);
  visit(SectionId::Communicating, trace.communicating_ns);
  visit(SectionId::IdleBegin, trace.idle_begin);
  visit(SectionId::Idle, trace.idle);
  visit(SectionId::MemoryBegin, trace.memory_begin);
  visit(SectionId::MemoryTime, trace.memory_time);
  visit(SectionId::MemoryBytes, trace.memory_bytes);
  visit(SectionId::Links, trace.links);
  visit(SectionId::LinkBegin, trace.link_begin);
  visit(SectionId::LinkSamples, trace.link_samples);
  visit(SectionId::WaitBegin, trace.wait_begin);
  visit(SectionId::Waits, trace.waits);
  visit(SectionId::OperandBegin, trace.operand_begin);
  visit(SectionId::Operands, trace.operands);
  visit(SectionId::Values, trace.values);
  visit(SectionId::RunBegin, trace.run_begin);
  visit(SectionId::Runs, trace.runs);
  visit(SectionId::Bodies, trace.bodies);
  visit(SectionId::Nodes, trace.nodes);
  visit(SectionId::Resident, trace.resident_bytes);
  visit(SectionId::RowClass, trace.row_class);
  visit(SectionId::ExpertShape, trace.expert_shape);
  visit(SectionId::ExpertLayers, trace.expert_layers);
  visit(SectionId::ExpertSteps, trace.expert_steps);
  visit(SectionId::ExpertRows, trace.expert_rows);
  visit(SectionId::Meetings, trace.meetings);
}

}  // namespace rehearse::trace_file
