// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_script.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <string>

#include "schedules/body/kind_plan.h"
#include "schedules/body/sizes.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "sim/memory/script_compiler.h"

namespace rehearse::sim {
namespace {

// Scripts mark as dropped what the runtime's selective recomputation drops: the attention core's
// outputs, or those of operators.
Remade remade_by(const Plan& plan) {
  if (plan.recompute.is_full()) return Remade::Everything;
  const bool dropped =
      plan.recomputes(RecomputePart::AttentionCore) || plan.recomputes(RecomputePart::Operators);
  return dropped ? Remade::Dropped : Remade::Nothing;
}

// --- Rows of layer kinds

// Whether the backward makes rows again that say so. Full recomputation runs the whole forward
// again, so that no row drops anything by itself.
bool drops(const Plan& plan, KindAgain part) {
  const bool alone = part == KindAgain::DeltaNormOut || part == KindAgain::LatentUp;
  if (!alone || plan.recompute.is_full()) return false;
  return plan.recomputes(part == KindAgain::DeltaNormOut ? RecomputePart::DeltaNormOut
                                                         : RecomputePart::LatentUp);
}

SizeFormula bytes_formula(double bytes) {
  return {SizeTerm{.factor = static_cast<std::int64_t>(bytes)}};
}

// The rows of a forward or a backward where the kinds of a segment stand in the place that the
// script has for them. What a kind saves lives from the forward's place to the backward's; what its
// kernels work in, while they run. `own`: where the kinds' rows are kept.
std::vector<const ScriptRow*> with_kinds(const std::vector<ScriptRow>& rows,
                                         const std::vector<BoundKind>& kinds, const Layout& layout,
                                         bool forward, std::deque<ScriptRow>& own) {
  std::vector<const ScriptRow*> all;
  all.reserve(rows.size());
  for (const ScriptRow& row : rows) {
    if (row.act != ScriptRow::Act::Mixer) {
      all.push_back(&row);
      continue;
    }
    std::int32_t number = 0;
    for (const BoundKind& mixer : kinds) {
      const auto block = static_cast<std::uint8_t>(kFirstKind + number);
      const std::string prefix = mixer.kind->name + std::to_string(number++) + ".";
      const KindPlan plan = kind_plan(layout);
      const std::vector<double> slots = slots_of(mixer, plan);
      const auto bytes = [&](const Expression& of) { return of.given() ? of.number(slots) : 0; };
      const auto act = [&](ScriptRow::Act what, const std::string& name, double size, Keep keep,
                           bool again = false) {
        all.push_back(&own.emplace_back(ScriptRow{.act = what,
                                                  .tensor = prefix + name,
                                                  .size = bytes_formula(size),
                                                  .keep = keep,
                                                  .condition = {},
                                                  .block = block,
                                                  .again = again}));
      };
      using Act = ScriptRow::Act;
      const double workspace =
          bytes(forward ? mixer.kind->forward_workspace : mixer.kind->backward_workspace);
      act(Act::Allocate, "workspace", workspace, Keep::No);
      for (const KindRow& saved : mixer.kind->saved) {
        const RankShape& s = layout.shape;
        const std::int64_t share = saved.cut == KindRow::Cut::Tensor     ? s.tensor
                                   : saved.cut == KindRow::Cut::Sequence ? s.tokens / s.local
                                                                         : 1;
        const double size =
            bytes(saved.bytes) * static_cast<double>(s.tokens) / static_cast<double>(share);
        const bool dropped = drops(layout.plan, saved.dropped_by);
        const Keep keep = dropped                                          ? Keep::No
                          : saved.dropped_by == KindAgain::ResidualStreams ? Keep::Streams
                                                                           : Keep::Always;
        if (forward || dropped) act(Act::Allocate, saved.name, size, keep, !forward);
        if (forward && dropped) act(Act::Free, saved.name, 0, Keep::No);
        if (!forward) act(Act::Free, saved.name, 0, Keep::No);
      }
      act(Act::Free, "workspace", 0, Keep::No);
    }
  }
  return all;
}

// The last kind of a layer that holds its streams; 0: none does.
std::uint8_t streams_kind(const Transformer& model) {
  const std::vector<BoundKind>& mixers = mixers_of(model);
  for (std::size_t i = mixers.size(); i-- > 0;) {
    if (holds_streams(*mixers[i].kind)) return static_cast<std::uint8_t>(kFirstKind + i);
  }
  return 0;
}

SegmentProgram compiled(const SegmentScript& script, const std::vector<BoundKind>& kinds,
                        const MemoryProfile& profile, const Layout& layout, bool experts,
                        bool rotates, Remade remade, Extent extent,
                        ReplicaRole role = ReplicaRole::Alike) {
  ScriptRows rows;
  rows.forward = with_kinds(script.forward, kinds, layout, /*forward=*/true, rows.of_kinds);
  if (extent != Extent::Forward) {
    rows.backward = with_kinds(script.backward, kinds, layout, /*forward=*/false, rows.of_kinds);
  }
  const SizeLetters letters = size_letters(layout, experts);
  const std::uint8_t streams = streams_kind(layout.model);
  SegmentProgram program =
      compile_script(rows, letters, script_flags(profile, layout, experts, rotates),
                     {.remade = remade,
                      .extent = extent,
                      .compiled = layout.plan.runtime.compiled,
                      .notes_streams = recomputes_streams(layout.model, layout.plan),
                      .streams = streams,
                      .role = role,
                      .replicas = layout.plan.replicas()});
  program.input_kind = has_mixer(layout.model) ? kFirstBlock : kSecondBlock;
  if (streams > 0) program.input_kind = streams;
  return program;
}

SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates, Extent extent);

SegmentProgram segment_program(const MemoryProfile& profile, const Layout& layout,
                               SegmentShape shape, bool rotates, Extent extent) {
  const auto layer = [&](bool experts) {
    return compiled(profile.layer, mixers_of(layout.model), profile, layout, experts, rotates,
                    remade_by(layout.plan), extent);
  };
  const auto other = [&](const SegmentScript& script, const std::vector<BoundKind>& kinds = {}) {
    return compiled(script, kinds, profile, layout, /*experts=*/false, rotates, Remade::Nothing,
                    extent);
  };
  switch (shape) {
    case SegmentShape::Embedding:
      return other(profile.embedding, kinds_at_embedding(layout.model));
    case SegmentShape::DenseLayer:
      return layer(false);
    case SegmentShape::ExpertLayer:
      return layer(true);
    case SegmentShape::PredictionLayer: {
      std::vector<SegmentProgram> parts;
      if (!profile.prediction.forward.empty()) parts.push_back(other(profile.prediction));
      const std::int32_t like = variant_of(layout.model, layout.model.layers);
      if (like >= 0) {
        parts.push_back(layer_program(profile, layout, like, rotates, extent));
      } else {
        parts.push_back(layer(layout.model.has_experts(layout.model.layers - 1)));
      }
      return chained(parts);
    }
    case SegmentShape::Head:
      break;
  }
  SegmentProgram head = other(profile.head, kinds_at_head(layout.model));
  if (layout.prediction_layers() == 0) return head;
  return chained(
      std::vector<SegmentProgram>(static_cast<std::size_t>(1 + layout.prediction_layers()), head));
}

SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates, Extent extent) {
  const Transformer& of = variant(layout.model, index);
  return segment_program(
      profile, {of, layout.plan},
      of.experts.count > 0 ? SegmentShape::ExpertLayer : SegmentShape::DenseLayer, rotates, extent);
}

}  // namespace

SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates) {
  return layer_program(profile, layout, index, rotates, Extent::Whole);
}

SegmentProgram segment_program(const MemoryProfile& profile, const Layout& layout,
                               SegmentShape shape, bool rotates) {
  return segment_program(profile, layout, shape, rotates, Extent::Whole);
}

ForwardBytes layer_forward_bytes(const MemoryProfile& profile, const Layout& layout,
                                 std::int32_t index, bool rotates) {
  return forward_bytes(layer_program(profile, layout, index, rotates, Extent::Forward));
}

ForwardBytes segment_forward_bytes(const MemoryProfile& profile, const Layout& layout,
                                   SegmentShape shape, bool rotates) {
  return forward_bytes(segment_program(profile, layout, shape, rotates, Extent::Forward));
}

SegmentPrograms segment_programs(const MemoryProfile& profile, const Layout& layout,
                                 ReplicaRole role, bool apart) {
  const Extent extent = apart ? Extent::Apart : Extent::Whole;
  SegmentPrograms programs;
  programs.rotating.resize(segment_classes(layout.model));
  programs.still.resize(programs.rotating.size());
  const bool mixed = variants(layout.model) > 0;
  for (std::size_t i = 0; i < kNumSegmentShapes; ++i) {
    const auto shape = static_cast<SegmentShape>(i);
    if (shape == SegmentShape::DenseLayer && mixed) continue;
    if (shape == SegmentShape::ExpertLayer && (mixed || layout.model.experts.count == 0)) continue;
    if (shape == SegmentShape::PredictionLayer && layout.prediction_layers() == 0) continue;
    programs.rotating[i] = segment_program(profile, layout, shape, /*rotates=*/true, extent);
    programs.still[i] = segment_program(profile, layout, shape, /*rotates=*/false, extent);
  }
  if (role != ReplicaRole::Alike) {
    const auto head = static_cast<std::size_t>(SegmentShape::Head);
    programs.rotating[head] = programs.still[head] =
        compiled(profile.head, {}, profile, layout, /*experts=*/false, /*rotates=*/true,
                 Remade::Nothing, extent, role);
  }
  for (std::int32_t i = 0; i < variants(layout.model); ++i) {
    const std::size_t at = kNumSegmentShapes + static_cast<std::size_t>(i);
    programs.rotating[at] = layer_program(profile, layout, i, /*rotates=*/true, extent);
    programs.still[at] = layer_program(profile, layout, i, /*rotates=*/false, extent);
  }
  if (layout.plan.recompute.any() && layout.plan.recompute_layers > 0) {
    const Plan plan = plan_of_kept_layers(layout.plan);
    programs.kept.push_back(
        segment_programs(profile, {layout.model, plan}, ReplicaRole::Alike, apart));
  }
  return programs;
}

const SegmentProgram& of_segment(const SegmentPrograms& programs, const Layout& layout,
                                 const SegmentInfo& segment) {
  const Transformer& model = layout.model;
  const bool keeps = !programs.kept.empty() && segment.kind == SegmentKind::Layer &&
                     keeps_layer(layout.plan, segment.layer);
  const SegmentPrograms& from = keeps ? programs.kept.front() : programs;
  const std::size_t of = segment_class(model, segment);
  return rotates(model, segment) ? from.rotating[of] : from.still[of];
}

// Between two programs lie an activation, which the second keeps as its input, and its gradient.
SegmentProgram chained(std::span<const SegmentProgram> programs) {
  SegmentProgram whole{.slots = kInputGradientSlot + 1};
  std::vector<std::vector<std::int16_t>> slots;  // of each program, in the whole
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const bool first = i == 0, last = i + 1 == programs.size();
    std::vector<std::int16_t> own(static_cast<std::size_t>(programs[i].slots));
    for (std::int16_t& slot : own) slot = whole.slots++;
    own[kInputSlot] = first ? std::int16_t{kInputSlot} : slots.back()[kOutputSlot];
    own[kInputGradientSlot] =
        first ? std::int16_t{kInputGradientSlot} : slots.back()[kOutputGradientSlot];
    if (last) {
      own[kOutputSlot] = kOutputSlot;
      own[kOutputGradientSlot] = kOutputGradientSlot;
    }
    slots.push_back(std::move(own));
  }
  const auto add = [](std::vector<ScriptStep>& to, const std::vector<ScriptStep>& steps,
                      const std::vector<std::int16_t>& own) {
    for (ScriptStep step : steps) {
      step.slot = own[static_cast<std::size_t>(step.slot)];
      to.push_back(step);
    }
  };
  for (std::size_t i = 0; i < programs.size(); ++i) {
    add(whole.forward, programs[i].forward, slots[i]);
  }
  for (std::size_t i = 0; i < programs.size(); ++i) {
    add(whole.streams, programs[i].streams, slots[i]);
  }
  whole.output = programs.empty() ? 0 : programs.back().output;
  whole.own_block = true;
  for (std::size_t i = 0; i < programs.size(); ++i) add(whole.again, programs[i].again, slots[i]);
  for (auto steps : {&SegmentProgram::backward, &SegmentProgram::apart}) {
    std::vector<ScriptStep>& to = whole.*steps;
    for (std::size_t i = programs.size(); i-- > 0;) {
      add(to, programs[i].*steps, slots[i]);
      if (i + 1 < programs.size()) to.push_back({.slot = slots[i][kOutputGradientSlot]});
      if (i > 0) to.push_back({.slot = slots[i][kInputSlot]});
    }
  }
  return whole;
}

// What a block of layers drops: the streams between blocks, the output among them, stay of its last
// layer alone.
ForwardBytes forward_bytes(const SegmentProgram& program) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(program.slots), 0);
  ForwardBytes bytes;
  for (const ScriptStep& step : program.forward) {
    std::int64_t& slot = held[static_cast<std::size_t>(step.slot)];
    bytes.kept += step.bytes - slot;
    slot = step.bytes;
    bytes.peak = std::max(bytes.peak, bytes.kept);
  }
  for (const ScriptStep& step : program.streams) bytes.kept -= step.bytes;
  if (!program.streams.empty()) bytes.kept -= program.output;
  return bytes;
}

std::int64_t kept_bytes(const SegmentProgram& program, std::int64_t handover) {
  std::vector<std::int64_t> held(
      std::max<std::size_t>(static_cast<std::size_t>(program.slots), kInputGradientSlot + 1), 0);
  held[kInputSlot] = handover;
  for (const ScriptStep& step : program.forward) {
    held[static_cast<std::size_t>(step.slot)] = step.bytes;
  }
  held[kOutputSlot] = 0;
  for (const ScriptStep& step : program.streams) held[static_cast<std::size_t>(step.slot)] = 0;
  return std::accumulate(held.begin(), held.end(), std::int64_t{0});
}

}  // namespace rehearse::sim
