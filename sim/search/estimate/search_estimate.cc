// SPDX-License-Identifier: Apache-2.0
#include "sim/search/estimate/search_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>

#include "schedules/body/body.h"
#include "schedules/body/framework/body_framework.h"
#include "schedules/body/loss_body.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/placement.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/memory/optimizer_state.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/zero/quantized_gather.h"
#include "schedules/scenario/zero/shard_groups.h"
#include "sim/compute/body_cost.h"
#include "sim/compute/gemm_cost.h"
#include "sim/memory/memory_states.h"
#include "sim/memory/peak_lower_bound.h"
#include "sim/network/collective_cost.h"
#include "sim/network/topology.h"
#include "sim/network/transfer_cost.h"
#include "sim/predict/corrected/variation.h"
#include "sim/search/estimate/step_estimate.h"

namespace rehearse::sim {
namespace {

constexpr auto kDense = static_cast<std::size_t>(SegmentShape::DenseLayer),
               kExpert = static_cast<std::size_t>(SegmentShape::ExpertLayer),
               kPrediction = static_cast<std::size_t>(SegmentShape::PredictionLayer);

class MeshEstimator {
 public:
  MeshEstimator(const SearchSetup& setup, const MeshSize& mesh, PipelineTimes& times,
                std::size_t keep_refused)
      : setup_(setup), model_(setup.space->base.model), step_(setup, times), keep_(keep_refused) {
    out_.mesh = mesh;
  }

  MeshCandidates run() {
    out_.families = families_of(*setup_.space, out_.mesh, out_.error);
    splits_ = std::ranges::any_of(out_.families, [](const PlanFamily& family) {
      const ScheduleInfo* info = find_schedule(family.plan.schedule);
      return info != nullptr && info->splits_backward;
    });
    for (std::size_t i = 0; i < out_.families.size(); ++i) {
      if (setup_.stop != nullptr && setup_.stop->load(std::memory_order_relaxed)) break;
      family(static_cast<std::int32_t>(i));
    }
    if (refused_.size() > keep_) trim();
    out_.refused = std::move(refused_);
    return std::move(out_);
  }

 private:
  // The mesh on the cluster: which links its groups use. Takes time with the GPUs, and is the same
  // for most kinds of families.
  struct Placed {
    struct Hop {  // to a next position, near and far
      Path path;
      GroupShape receivers;  // along tp
    };
    Placed(const Cluster& cluster, const CollectiveModel& model, const Plan& plan,
           std::span<const RankClassInfo> rows)
        : network(cluster, model, plan, rows) {}
    Network network;
    std::vector<Hop> hops;
    GroupShape shards, across;  // replicas that share a copy; those that hold the same shards
    GroupShape secondary;       // that share a second copy; empty links: there is none
  };
  struct Kind {
    std::int32_t number = -1;
    const Placed* placed = nullptr;  // null: nothing was estimated yet
    CollectiveTimes collectives;
    std::map<std::tuple<std::int32_t, Recompute, std::int32_t>, FamilyCosts> templates;
    std::map<std::int64_t, std::array<double, 4>>
        traffic;  // by elements: reduce, scatter, gather, across
    std::vector<std::int32_t> micro_batches;
    std::vector<Recompute> recomputes;
    std::unique_ptr<BoundTables> bound;
  };

  Kind& kind_of(const PlanFamily& family) {
    for (const auto& kind : kinds_) {
      if (kind->number == family.kind) return *kind;
    }
    auto kind = std::make_unique<Kind>();
    kind->number = family.kind;
    const Plan& plan = family.plan;
    kind->micro_batches = micro_batches_of(*setup_.space, plan);
    kind->recomputes = recomputes_of(*setup_.space, plan);
    const MemoryProfile* profile =
        plan.runtime.performer().plans_arena ? nullptr : &setup_.tables.profile(plan);
    kind->bound = std::make_unique<BoundTables>(profile, model_,
                                                setup_.cluster->gpu.compute_capability.value_or(0));
    kinds_.push_back(std::move(kind));
    return *kinds_.back();
  }

  void place(Kind& kind, const Plan& plan) {
    if (kind.placed != nullptr) return;
    std::unique_ptr<Placed>& placed =
        placed_[{plan.rank_order, plan.expert_parallel, plan.expert_tensor_parallel, plan.shards(),
                 plan.secondary_shard_group, plan.head_exchange_group}];
    if (!placed) placed = placed_as(plan);
    kind.placed = placed.get();
    kind.collectives = body_collectives(placed->network, Layout(model_, plan));
  }

  std::unique_ptr<Placed> placed_as(const Plan& plan) const {
    std::vector<RankClassInfo> rows;
    const std::int32_t replicas = plan.replicas();
    for (std::int32_t p = 0; p < plan.pipeline_parallel; ++p) {
      rows.push_back({{p}, plan.tensor_parallel * replicas, 0, replicas});
    }
    auto placed = std::make_unique<Placed>(*setup_.cluster, setup_.tables.collectives, plan, rows);
    const Network& network = placed->network;
    const auto among = [&](ReplicaPart part) {
      return network.group(
          RankClass{0},
          GroupAxes{.tensor = false, .context = true, .data = true, .part = part, .positions = {}});
    };
    if (plan.secondary_shard_group > 0) {
      placed->shards = among(ReplicaPart::All);
      placed->secondary = among(ReplicaPart::Neighbours);
    } else {
      placed->shards = among(ReplicaPart::Neighbours);
      placed->across = among(ReplicaPart::Across);
    }
    for (const std::int32_t to : {1, plan.pipeline_parallel / 2}) {
      if (plan.pipeline_parallel == 1) break;
      placed->hops.push_back({network.path(RankClass{to - 1}, RankClass{to}),
                              network.group(RankClass{to}, Axis::Tensor)});
    }
    return placed;
  }

  void family(std::int32_t index) {
    const PlanFamily& family = out_.families[static_cast<std::size_t>(index)];
    Kind& kind = kind_of(family);
    const FamilyBound bound = kind.bound->family(family.plan);
    std::vector<PositionLoad> loads;
    const std::int64_t capacity = setup_.cluster->capacity().value;
    // Nobody asks what a plan would give that needs more.
    const std::int64_t wanted = keep_ == 0 ? capacity : std::max(capacity, setup_.most_wanted);
    const bool hopeless = kind.bound->states_bound(bound, family.plan) > wanted;
    for (const std::int32_t micro_batch : kind.micro_batches) {
      const Result<Plan> chosen = plan_of(family.plan, micro_batch, {});
      if (!chosen) continue;
      Plan plan = chosen.value();
      if (simulated_ops(setup_.space->base, plan) > kMostOpsOfPlan) {
        ++out_.too_long;
        continue;
      }
      for (const Recompute& recompute : kind.recomputes) {
        if (setup_.wanted && !setup_.wanted(family.plan, micro_batch, recompute)) continue;
        plan.recompute = recompute;
        ++out_.plans;
        if (hopeless) continue;
        Candidate candidate{.family = index, .micro_batch = micro_batch, .recompute = recompute};
        candidate.bound = kind.bound->lower_bound(bound, plan);
        if (candidate.bound > wanted) continue;
        const bool fits = candidate.bound <= capacity;
        place(kind, plan);
        if (loads.empty()) loads = loads_of(kind, family.plan, bound.stages);
        const FamilyCosts& costs = template_of(kind, plan);
        if (!costs.valid) continue;
        candidate.seconds = 1e-9 * step_.step(plan, costs, kept_costs(kind, plan), loads);
        if (fits) {
          out_.fitting.push_back(candidate);
        } else {
          refused_.push_back(candidate);
          if (refused_.size() > 4 * keep_) trim();
        }
      }
    }
  }

  void trim() {
    std::ranges::stable_sort(refused_, {}, &Candidate::seconds);
    refused_.resize(std::min(refused_.size(), keep_));
  }

  // The costs of layers that are not computed again where others are; null: there are none.
  const FamilyCosts* kept_costs(Kind& kind, const Plan& plan) {
    if (plan.recompute_layers == 0 || !plan.recompute.any()) return nullptr;
    return &template_of(kind, plan_of_kept_layers(plan));
  }

  const FamilyCosts& template_of(Kind& kind, const Plan& plan) {
    const auto [at, fresh] =
        kind.templates.try_emplace({plan.micro_batch, plan.recompute, plan.sequence_slices});
    if (fresh) price(kind, plan, at->second);
    return at->second;
  }

  void price(Kind& kind, const Plan& plan, FamilyCosts& to) {
    const Layout layout(model_, plan);
    const Result<ComputeModel> compute = ComputeModel::create(
        *setup_.cluster, layout, kind.collectives, setup_.tables.scalars, &products_);
    if (!compute) return;
    to.valid = true;
    to.slowdown = compute.value().scalars().overlap_slowdown;
    const bool pipelined = plan.pipeline_parallel > 1;
    to.of.resize(classes_);
    for (std::size_t s = 0; s < classes_; ++s) {
      if (s == kExpert && (mixed() || model_.experts.count == 0)) continue;
      if (s == kDense && (mixed() || !model_.has_dense_layers())) continue;
      if (s == kPrediction && layout.prediction_layers() == 0) continue;
      // Layers of prediction may be of a variant that no layer of the model has.
      if (s >= kNumSegmentShapes && !segment_of_class(model_, s)) continue;
      const auto cost = [&](Direction direction) {
        const BodyShape shape = shape_of(layout, s, direction);
        std::optional<Body> own;
        return compute.value().price(compute.value().body(layout, shape, own));
      };
      const auto of_all = [&plan](Nanoseconds one) {
        return static_cast<double>(one.value * plan.sequence_slices);
      };
      SegmentTimes& times = to.of[s];
      const BodyCost forward = cost(Direction::Forward), backward = cost(Direction::Backward);
      times.forward = of_all(forward.time);
      times.backward = of_all(backward.time);
      times.communicating = of_all(forward.communicating) + of_all(backward.communicating);
      if (!pipelined || !splits_) continue;
      times.input = of_all(cost(Direction::InputGradient).time);
      times.weight = of_all(cost(Direction::WeightGradient).time);
    }
    if (pipelined) to.transfer = transfer(kind, plan);
    if (plan.has_parameter_server()) {
      to.through_root =
          static_cast<double>(compute.value().price(make_loss_body(layout)).time.value);
      to.through_root += batch_exchanges(kind, layout);
    }
  }

  // What a micro-batch through one GPU exchanges: tokens and outputs of all replicas, and their
  // gradients [ns].
  static double batch_exchanges(Kind& kind, const Layout& layout) {
    const std::int64_t tokens = layout.plan.replicas() * layout.shape.tokens;
    const std::int64_t outputs = layout.shape.element * tokens * output_columns(layout);
    double sum = 0;
    for (const auto& [kind_of, bytes] :
         {std::pair{OpKind::Scatter, 4 * tokens}, std::pair{OpKind::Gather, outputs},
          std::pair{OpKind::Scatter, outputs}}) {
      sum += static_cast<double>(
          collective_cost(kind_of, {bytes}, kind.placed->shards, kind.placed->network).time.value);
    }
    return sum;
  }

  bool mixed() const { return classes_ > kNumSegmentShapes; }

  // Layers of one class are taken together: with the mean of their reaches, rotating.
  BodyShape shape_of(const Layout& layout, std::size_t of, Direction direction) const {
    if (mixed() && (of == kPrediction || of >= kNumSegmentShapes)) {
      BodyShape shape = body_shape(layout, *segment_of_class(model_, of), direction);
      shape.keeps = false;
      return shape;
    }
    const bool prediction = of == kPrediction;
    return {.segment = rehearse::kind_of(static_cast<SegmentShape>(of)),
            .experts = prediction ? model_.has_experts(model_.layers - 1) : of == kExpert,
            .direction = direction,
            .prediction = prediction};
  }

  double transfer(Kind& kind, const Plan& plan) const {
    double longest = 0;
    for (const Placed::Hop& hop : kind.placed->hops) {
      const TransferCost cost = handover_cost(plan, {Layout(model_, plan).activation_bytes()},
                                              hop.path, hop.receivers, kind.placed->network);
      longest = std::max(longest, static_cast<double>(cost.time.value));
    }
    return longest;
  }

  // Collectives over the replicas of `elements` parameters: all-reduce of gradients, its
  // reduce-scatter, the gather of parameters, and the all-reduce across groups of shards [ns].
  const std::array<double, 4>& traffic(Kind& kind, const Plan& plan, std::int64_t elements) {
    const auto [at, fresh] = kind.traffic.try_emplace(elements);
    if (!fresh) return at->second;
    const std::int64_t element = Layout(model_, plan).shape.element;
    const auto cost = [&](OpKind op, std::int64_t bytes, const GroupShape& over) {
      return static_cast<double>(
          collective_cost(op, {bytes}, over, kind.placed->network).time.value);
    };
    const std::int64_t gradients = plan.gradient_wire_bytes() * elements;
    const double across = cost(OpKind::AllReduce, gradients / plan.shards(), kind.placed->across);
    const auto reduced = [&] {
      switch (plan.runtime.gradient_reduction) {
        case GradientReduction::AllReduceFp32:
          return cost(OpKind::AllReduce, 4 * elements, kind.placed->shards);
        case GradientReduction::AllReduce:
          return cost(OpKind::AllReduce, gradients, kind.placed->shards);
        case GradientReduction::ReduceScatter:
          break;
      }
      return cost(OpKind::ReduceScatter, gradients, kind.placed->shards);
    };
    const auto returned = [&] {
      if (!plan.updates_by_broadcast()) {
        return gathered(kind, plan, elements, kind.placed->shards);
      }
      const CollectiveCost broadcasts =  // every rank owns a tensor
          tensor_broadcasts_cost({element * elements}, kind.placed->shards.ranks,
                                 kind.placed->shards, kind.placed->network);
      return static_cast<double>(broadcasts.time.value);
    };
    at->second = {cost(OpKind::AllReduce, gradients, kind.placed->shards), reduced(), returned(),
                  across};
    return at->second;
  }

  // Parameters out of shards over the group [ns].
  double gathered(const Kind& kind, const Plan& plan, std::int64_t elements,
                  const GroupShape& over) const {
    const Network& network = kind.placed->network;
    const std::int64_t element = Layout(model_, plan).shape.element, ranks = over.ranks;
    const auto time = [&](std::int64_t bytes) {
      return static_cast<double>(
          collective_cost(OpKind::AllGather, {bytes}, over, network).time.value);
    };
    if (!plan.gathers_units() || !quantizes_gathers(plan)) return time(element * elements);
    // Quantized by each rank, dequantized by all; kernels that memory bounds.
    const double moved =
        static_cast<double>(elements) *
        (static_cast<double>(plan.precision.parameters + 1) / static_cast<double>(ranks) + 1 +
         static_cast<double>(element));
    return time(ranks * quantized_bytes(plan, (elements / ranks + 63) / 64 * 64, 0)) +
           1e9 * moved / setup_.cluster->gpu.memory_bandwidth.value;
  }

  std::vector<PositionLoad> loads_of(Kind& kind, const Plan& plan,
                                     const std::vector<StageContent>& stages) {
    const std::int32_t p = plan.pipeline_parallel;
    Placement placement = placement_of(plan);
    if (placement.stages() == 0) {
      placement = loop_placement(p, static_cast<std::int32_t>(stages.size()) / p);
    }
    const bool both = !placement.up.empty();
    std::vector<PositionLoad> loads(static_cast<std::size_t>(p));
    std::vector<double> again(loads.size(), 0);  // layers of them
    BoundTables& tables = *kind.bound;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const auto add = [&](Position position) {
        PositionLoad& load = loads[position.index()];
        load.segments.resize(classes_);
        for (std::size_t k = 0; k < classes_; ++k)
          load.segments[k] += stages[s].segments[k] * (both ? 0.5 : 1);
        load.parameters += stages[s].parameters;
        load.experts += stages[s].experts;
        const std::int32_t layers = plan.stage_layers[s];
        again[position.index()] += std::min(plan.recompute_layers, layers) * (both ? 0.5 : 1);
      };
      add(placement.down[s]);
      if (both) add(placement.up[s]);
    }
    for (std::size_t i = 0; plan.recompute_layers > 0 && i < loads.size(); ++i) {
      const double layers = step_.layers_of(loads[i]);
      if (layers > 0) loads[i].again = again[i] / layers;
    }
    std::vector<PositionLoad> distinct;
    for (const PositionLoad& load : loads) {
      const auto same = std::ranges::find_if(distinct, [&](const PositionLoad& other) {
        return other.segments == load.segments && other.parameters == load.parameters &&
               other.experts == load.experts && other.again == load.again;
      });
      if (same != distinct.end()) {
        ++same->positions;
      } else {
        distinct.push_back(load);
      }
    }
    const Result<double> update = update_time(kind, plan);
    for (PositionLoad& load : distinct) {
      if (plan.offload.activations) load.kept = tables.kept_per_layer(plan);
      if (plan.offload.parameters) {
        load.unit_fetch = 1e9 * plan.precision.parameters *
                          static_cast<double>(tables.layer_parameters()) / plan.shards() /
                          step_.away_link(plan, setup_.cluster->nvme.read);
      }
      load.update = (update ? update.value() : 0) * updated(plan, load);
      if (plan.replicas() == 1) continue;
      if (plan.has_parameter_server()) {
        const auto cost = [&](OpKind op, std::int64_t bytes) {
          return static_cast<double>(
              collective_cost(op, {bytes}, kind.placed->shards, kind.placed->network).time.value);
        };
        load.gather = cost(OpKind::Broadcast, Layout(model_, plan).shape.element * load.parameters);
        load.reduce = cost(OpKind::Reduce, plan.gradient_wire_bytes() * load.parameters);
        continue;
      }
      const auto& whole = traffic(kind, plan, load.parameters);
      load.reduce = whole[plan.zero_stage >= 1 ? 1 : 0];
      load.gather = plan.zero_stage >= 1 ? whole[2] : 0;
      load.across = plan.zero_stage >= 1 ? whole[3] : 0;
      if (plan.bucket_bytes > 0) {
        load.buckets = static_cast<std::int32_t>(std::clamp<std::int64_t>(
            plan.precision.gradients * load.parameters / plan.bucket_bytes, 1, 1000));
      }
      if (plan.gathers_each_microbatch()) {
        const auto& unit = traffic(kind, plan, tables.layer_parameters());
        load.unit_reduce = unit[1];
        load.unit_across = unit[3];
        load.unit_gather = unit[2];
        load.unit_again =
            plan.secondary_shard_group > 0
                ? gathered(kind, plan, tables.layer_parameters(), kind.placed->secondary)
                : unit[2];
      }
    }
    return distinct;
  }

  // Optimizer step and gradient norm per parameter [ns], from a large piece.
  Result<double> update_time(Kind& kind, const Plan& plan) {
    if (update_) return *update_;
    Plan one = plan;
    one.micro_batch = std::max(1, plan.tensor_parallel_2d.rows);
    const Result<ComputeModel> compute = ComputeModel::create(
        *setup_.cluster, {model_, one}, kind.collectives, setup_.tables.scalars);
    if (!compute) return compute.error();
    constexpr std::int64_t kPiece = 100'000'000;
    update_ = static_cast<double>(compute.value().optimizer_step(kPiece).value +
                                  compute.value().gradient_norm(kPiece).value) /
              kPiece;
    return *update_;
  }

  const SearchSetup& setup_;
  const Transformer& model_;
  const std::size_t classes_ = segment_classes(model_);
  StepEstimate step_;
  KnownProducts products_;
  bool splits_ = false;  // schedules of the mesh halve their backwards
  std::size_t keep_;
  MeshCandidates out_;
  std::vector<Candidate> refused_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  // By what tells meshes of these sizes apart: order of ranks, experts' sizes, shards, and those of
  // a second copy, those that exchange heads.
  using Placing = std::tuple<decltype(Plan::rank_order), std::int32_t, std::int32_t, std::int32_t,
                             std::int32_t, std::int32_t>;
  std::map<Placing, std::unique_ptr<Placed>> placed_;
  std::optional<double> update_;
};

}  // namespace

Result<SearchSetup> search_setup(const Space& space, const Cluster& cluster) {
  Result<HardwareTables> tables = read_hardware_tables(cluster, framework_runtimes(space));
  if (!tables) return tables.error();
  return SearchSetup{.space = &space, .cluster = &cluster, .tables = std::move(tables).value()};
}

double simulated_ops(const Scenario& scenario, const Plan& plan) {
  return lowered_ops(scenario.model, plan) * (scenario.variation.any() ? kMostRanges : 1);
}

MeshCandidates estimate_mesh(const SearchSetup& setup, const MeshSize& mesh, PipelineTimes& times,
                             std::size_t keep_refused) {
  return MeshEstimator(setup, mesh, times, keep_refused).run();
}

}  // namespace rehearse::sim
