// SPDX-License-Identifier: Apache-2.0
// From operands to addresses, once before the first step.
#include <algorithm>

#include "exec/step/rank_state.h"
#include "schedules/ir/operand_role.h"
#include "schedules/ir/placed_recompute.h"

namespace rehearse::exec {
namespace {

// Roles of which an op has one address.
struct Field {
  OperandRole role;
  std::byte* OpAddresses::*address;
};
constexpr Field kFields[] = {{OperandRole::Input, &OpAddresses::x_in},
                             {OperandRole::Output, &OpAddresses::x_out},
                             {OperandRole::InputGradient, &OpAddresses::d_out},
                             {OperandRole::OutputGradient, &OpAddresses::d_in},
                             {OperandRole::SavedForDgrad, &OpAddresses::slab_input},
                             {OperandRole::SavedForWgrad, &OpAddresses::slab_weight},
                             {OperandRole::LeftForWgrad, &OpAddresses::left},
                             {OperandRole::RemadeForDgrad, &OpAddresses::remade_input},
                             {OperandRole::RemadeForWgrad, &OpAddresses::remade_weight},
                             {OperandRole::Workspace, &OpAddresses::workspace}};

// The op adds to what lies there: its first writer clears it before.
constexpr bool accumulates(OperandRole role) {
  return role == OperandRole::KeyValueGradient || role == OperandRole::Gradient ||
         role == OperandRole::HeadGradient || role == OperandRole::Loss;
}

class Resolver {
 public:
  Resolver(const LocalRanks& local, RankState& rank)
      : model_(local.model),
        plan_(local.plan),
        s_(local.schedule),
        places_(local.places),
        rank_(rank) {}

  void run() {
    const std::int32_t first = s_.row_begin[rank_.row.index()];
    const std::int32_t last = s_.row_begin[rank_.row.index() + 1];
    rank_.compute.resize(static_cast<std::size_t>(last - first));
    for (std::int32_t i = first; i < last; ++i) {
      const Op& op = s_.ops[static_cast<std::size_t>(i)];
      if (!is_compute(op.kind)) continue;
      auto& made = rank_.compute[static_cast<std::size_t>(i - first)];
      if (op.kind == OpKind::Overlap) {
        made.push_back(resolve({i}, s_.children[static_cast<std::size_t>(op.child)]));
        made.push_back(resolve({i}, s_.children[static_cast<std::size_t>(op.child) + 1]));
        made.front().clear.insert(made.front().clear.end(), made.back().clear.begin(),
                                  made.back().clear.end());  // before either half adds to them
        made.back().clear.clear();
        std::sort(made.front().clear.begin(), made.front().clear.end());
        made.front().clear.erase(std::unique(made.front().clear.begin(), made.front().clear.end()),
                                 made.front().clear.end());
      } else {
        made.push_back(resolve({i}, op));
      }
    }
  }

 private:
  std::byte* address(const Value& value) const { return rank_.arena + value.offset.value; }
  float* floats(const Value& value) const { return reinterpret_cast<float*>(address(value)); }

  ComputeOp resolve(OpId id, const Op& leaf) {
    ComputeOp out{.kind = leaf.kind, .apart = placed_.of(leaf), .slice = leaf.slice};
    const auto& all = s_.segments[leaf.stage.index()];
    const bool whole = leaf.segment_end < 0;
    const std::int16_t begin = whole ? std::int16_t{0} : leaf.segment_begin;
    const auto end = whole ? static_cast<std::int16_t>(all.size()) : leaf.segment_end;
    out.segments.assign(all.begin() + begin, all.begin() + end);
    const std::int64_t unit =
        leaf.microbatch.value * s_.slices + std::max<std::int32_t>(leaf.slice, 0);
    const std::int64_t units = std::int64_t{plan_.microbatches()} * s_.slices;
    out.first_sample =
        (leaf.microbatch.value * plan_.data_parallel + rank_.at.data) * plan_.micro_batch;

    std::vector<std::byte*> parameter(s_.buckets.size(), nullptr);
    std::vector<float*> gradient(2 * s_.buckets.size(), nullptr);
    for (const Operand& operand : s_.operands_of(id)) {
      const Value& value = s_.values[operand.value.index()];
      std::byte* at = address(value);
      const OperandRole role = role_of(s_, leaf, operand);
      for (const Field& field : kFields) {
        if (field.role == role) out.at.*field.address = at;
      }
      if (role == OperandRole::Tokens || role == OperandRole::Targets) {
        (role == OperandRole::Tokens ? out.at.tokens : out.at.targets) =
            reinterpret_cast<const std::int32_t*>(at) +
            (value.microbatch ? 0 : unit * (value.bytes.value / 4 / units));
      } else if (role == OperandRole::EarlierSavedForDgrad) {
        out.at.earlier_input.push_back(at);
      } else if (role == OperandRole::Parameter) {
        parameter[value.bucket.index()] = at;
      } else if (role == OperandRole::KeyValueGradient) {
        out.at.dkv.push_back(at);
      } else if (role == OperandRole::Gradient || role == OperandRole::HeadGradient) {
        gradient[2 * value.bucket.index() + (role == OperandRole::HeadGradient ? 1 : 0)] =
            floats(value);
      } else if (role == OperandRole::Loss) {
        out.at.loss = floats(value);
      }
      if (operand.access == Access::Write && accumulates(role)) {
        out.clear.emplace_back(
            at, role == OperandRole::Loss ? std::int64_t{sizeof(float)} : value.bytes.value);
      }
    }
    for (std::int16_t g = begin; g < end; ++g) {
      const SegmentInfo& info = all[static_cast<std::size_t>(g)];
      const auto tensors = segment_parameters({model_, plan_}, info.kind, info.layer);
      std::vector<const std::byte*> values;
      std::vector<float*> gradients;
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        add(find(leaf.stage, g, static_cast<std::int32_t>(k)), 0, parameter, gradient, values,
            gradients);
      }
      if (info.kind == SegmentKind::Head && model_.tied_embedding) {
        // Kept apart from the embedding's use, or not.
        const TensorPlace* table = find_table();
        const bool apart = table != nullptr && gradient[2 * table->bucket.index() + 1] != nullptr;
        add(table, apart ? 1 : 0, parameter, gradient, values, gradients);
      }
      out.at.parameter.push_back(std::move(values));
      out.at.gradient.push_back(std::move(gradients));
    }
    return out;
  }

  void add(const TensorPlace* place, std::size_t use, const std::vector<std::byte*>& parameter,
           const std::vector<float*>& gradient, std::vector<const std::byte*>& values,
           std::vector<float*>& gradients) const {
    const std::byte* p = place == nullptr ? nullptr : parameter[place->bucket.index()];
    float* g = place == nullptr ? nullptr : gradient[2 * place->bucket.index() + use];
    values.push_back(p == nullptr ? nullptr : p + place->offset * element_);
    gradients.push_back(g == nullptr ? nullptr : g + place->offset);
  }
  bool here(const TensorPlace& place) const {
    return s_.buckets[place.bucket.index()].position == s_.position_of(rank_.row);
  }
  const TensorPlace* find(Stage stage, std::int32_t segment, std::int32_t tensor) const {
    for (const TensorPlace& place : places_) {
      const bool table = place.what.table && model_.tied_embedding;
      if (here(place) && place.tensor == tensor &&
          ((place.stage == stage && place.segment == segment) ||
           (table && stage.value == 0 && segment == 0 && tensor == 0))) {
        return &place;
      }
    }
    return nullptr;
  }
  const TensorPlace* find_table() const {
    for (const TensorPlace& place : places_) {
      if (here(place) && place.what.table) return &place;
    }
    return nullptr;
  }

  const Transformer& model_;
  const Plan& plan_;
  const Schedule& s_;
  const std::vector<TensorPlace>& places_;
  const PlacedRecompute placed_{s_};
  RankState& rank_;
  std::int64_t element_ = Layout(model_, plan_).shape.element;  // bytes of a full parameter's
};

}  // namespace

void resolve_addresses(const LocalRanks& local, RankState& rank) {
  Resolver(local, rank).run();
}

}  // namespace rehearse::exec
