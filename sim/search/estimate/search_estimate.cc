// SPDX-License-Identifier: Apache-2.0
#include "sim/search/estimate/search_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "schedules/body/body.h"
#include "schedules/body/framework/body_framework.h"
#include "schedules/body/loss_body.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/placement.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/optimizer_state.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/zero/quantized_gather.h"
#include "schedules/scenario/zero/shard_groups.h"
#include "sim/compute/body_cost.h"
#include "sim/compute/gemm_cost.h"
#include "sim/cost/overlap.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/memory/memory_states.h"
#include "sim/memory/peak_lower_bound.h"
#include "sim/network/collective_cost.h"
#include "sim/network/topology.h"
#include "sim/network/transfer_cost.h"
#include "sim/predict/variation.h"

namespace rehearse::sim {
namespace {

constexpr auto kDense = static_cast<std::size_t>(SegmentShape::DenseLayer),
               kExpert = static_cast<std::size_t>(SegmentShape::ExpertLayer),
               kPrediction = static_cast<std::size_t>(SegmentShape::PredictionLayer);

// Device time of one segment in each direction [ns].
struct Times {
  double forward = 0, backward = 0, input = 0, weight = 0;
  double communicating = 0;  // of forward + input + weight: waiting for its own collectives
};

// Bodies of one kind of family with one micro-batch, recomputation and number of slices; of slices
// the times of all of a sequence.
struct Template {
  std::vector<Times> of;    // by segment_class
  double transfer = 0;      // [ns] of one activation (of slices: of one) to the next position
  double slowdown = 0;      // compute beside a data-parallel collective
  double through_root = 0;  // [ns] of outputs that one GPU gathers: exchanges and the loss
  bool valid = false;
};

// What a position runs, in segments per micro-batch; positions with equal loads are one.
struct Load {
  std::vector<double> segments;              // by segment_class
  std::int64_t parameters = 0, experts = 0;  // experts: of them, with the experts' own replicas
  std::int32_t positions = 1;
  double reduce = 0, gather = 0, update = 0;  // [ns] once per step, alone
  double unit_reduce = 0, unit_gather = 0;    // [ns] of one layer (ZeRO-3 without a pipeline)
  double across = 0, unit_across = 0;  // [ns] what groups of shards sum between them, likewise
  double unit_again = 0;               // [ns] of its gather where it has been gathered before
  std::int32_t buckets = 1;
  std::int64_t kept = 0;  // [B] that a layer's forward keeps of a micro-batch
  double again = 1;       // share of its layers that are computed again, where any are
  double unit_fetch = 0;  // [ns] that a layer's parameters take from the host
};

// What layers take of which a share is computed again.
Times mixed_times(const Times& again, const Times& kept, double share) {
  const auto mean = [share](double a, double b) { return share * a + (1 - share) * b; };
  return {.forward = again.forward,
          .backward = mean(again.backward, kept.backward),
          .input = mean(again.input, kept.input),
          .weight = mean(again.weight, kept.weight),
          .communicating = mean(again.communicating, kept.communicating)};
}

class MeshEstimator {
 public:
  MeshEstimator(const SearchSetup& setup, const MeshSize& mesh, PipelineTimes& times,
                std::size_t keep_refused)
      : setup_(setup), model_(setup.space->base.model), times_(times), keep_(keep_refused) {
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
    std::map<std::tuple<std::int32_t, Recompute, std::int32_t>, Template> templates;
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
    std::vector<Load> loads;
    const std::int64_t capacity = setup_.cluster->capacity().value;
    // Of what needs more nobody asks what it would give.
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
        const Template& costs = template_of(kind, plan);
        if (!costs.valid) continue;
        candidate.seconds = 1e-9 * step(plan, costs, kept_costs(kind, plan), loads);
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

  // Of layers that are not computed again where others are; null: there are none.
  const Template* kept_costs(Kind& kind, const Plan& plan) {
    if (plan.recompute_layers == 0 || !plan.recompute.any()) return nullptr;
    return &template_of(kind, plan_of_kept_layers(plan));
  }

  const Template& template_of(Kind& kind, const Plan& plan) {
    const auto [at, fresh] =
        kind.templates.try_emplace({plan.micro_batch, plan.recompute, plan.sequence_slices});
    if (fresh) price(kind, plan, at->second);
    return at->second;
  }

  void price(Kind& kind, const Plan& plan, Template& to) {
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
        const Body* made = compute.value().made(shape);
        if (made != nullptr) return compute.value().price(*made);
        return compute.value().price(make_body(layout, shape));
      };
      const auto of_all = [&plan](Nanoseconds one) {
        return static_cast<double>(one.value * plan.sequence_slices);
      };
      Times& times = to.of[s];
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

  // Of a micro-batch through one GPU: tokens and outputs of all replicas, and their gradients [ns].
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

  std::vector<Load> loads_of(Kind& kind, const Plan& plan,
                             const std::vector<StageContent>& stages) {
    const std::int32_t p = plan.pipeline_parallel;
    Placement placement = placement_of(plan);
    if (placement.stages() == 0) {
      placement = loop_placement(p, static_cast<std::int32_t>(stages.size()) / p);
    }
    const bool both = !placement.up.empty();
    std::vector<Load> loads(static_cast<std::size_t>(p));
    std::vector<double> again(loads.size(), 0);  // layers of them
    BoundTables& tables = *kind.bound;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const auto add = [&](Position position) {
        Load& load = loads[position.index()];
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
      const double layers = layers_of(loads[i]);
      if (layers > 0) loads[i].again = again[i] / layers;
    }
    std::vector<Load> distinct;
    for (const Load& load : loads) {
      const auto same = std::ranges::find_if(distinct, [&](const Load& other) {
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
    for (Load& load : distinct) {
      if (plan.offload.activations) load.kept = tables.kept_per_layer(plan);
      if (plan.offload.parameters) {
        load.unit_fetch = 1e9 * plan.precision.parameters *
                          static_cast<double>(tables.layer_parameters()) / plan.shards() /
                          away_link(plan, setup_.cluster->nvme.read);
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

  static double updated(const Plan& plan, const Load& load) {
    return static_cast<double>(updated_elements(plan, load.parameters, load.experts));
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

  // The step in ns.
  double step(const Plan& plan, const Template& costs, const Template* kept,
              const std::vector<Load>& loads) {
    const auto times_of = [&](const Load& load, std::size_t k) {
      return kept == nullptr ? costs.of[k] : mixed_times(costs.of[k], kept->of[k], load.again);
    };
    const ScheduleInfo* info = find_schedule(plan.schedule);
    const bool split = info != nullptr && info->splits_backward && plan.pipeline_parallel > 1;
    const double m = plan.microbatches();
    double mean_forward = 0, mean_input = 0, mean_weight = 0, mean_communicating = 0;
    for (const Load& load : loads) {
      for (std::size_t k = 0; k < classes_; ++k) {
        const double share = load.segments[k] * load.positions / plan.pipeline_parallel;
        const Times times = times_of(load, k);
        mean_forward += share * times.forward;
        mean_input += share * (split ? times.input : times.backward);
        mean_weight += share * (split ? times.weight : 0);
        mean_communicating += share * times.communicating;
      }
    }
    const double mean = mean_forward + mean_input + mean_weight;
    PipelineWork work{.forward = mean_forward, .input = mean_input, .weight = mean_weight};
    if (!split) {
      work.input = mean_input / 2;
      work.weight = mean_input / 2;
    }
    const bool hides = plan.overlap_pair == PairOverlap::Full ||
                       (plan.overlap_pair == PairOverlap::Experts && plan.expert_parallel > 1);
    if (hides) work.pair_saving = std::min(mean_communicating, mean - mean_communicating) / mean;
    const PipelineTime pipeline = times_.of(plan, work);

    double longest = 0;
    for (const Load& load : loads) {
      double forward = 0, backward = 0;
      for (std::size_t k = 0; k < classes_; ++k) {
        const Times times = times_of(load, k);
        forward += load.segments[k] * times.forward;
        backward += load.segments[k] * (split ? times.input + times.weight : times.backward);
      }
      if (plan.offload.activations) {  // a micro-batch's leave while others come back
        const double layers = layers_of(load);
        const double copy = 1e9 * layers * static_cast<double>(load.kept) / host_link();
        const bool alone = plan.pipeline_parallel == 1;  // a backward waits for its own copies
        backward =
            alone ? std::max(backward, copy) : backward + std::max(0.0, copy - forward - backward);
        if (alone) forward = std::max(forward, copy);
      }
      if (!plan.overlap_pipeline && plan.pipeline_parallel > 1) {  // sent on the compute stream
        forward += costs.transfer * plan.virtual_stages;
        backward += costs.transfer * plan.virtual_stages;
      }
      double tail = load.update;
      const bool once = sums_shards_once(plan) && plan.reduces_each_microbatch();
      const double across = once ? 1 / m : 1;
      if (load.unit_gather > 0) {  // FSDP: each unit's traffic beside its neighbour's compute
        const double units = layers_of(load) + 1;
        const double again = plan.gathers_twice() ? load.unit_again : 0;
        // Of a copy that outlives its micro-batch later forwards gather too.
        const double first = keeps_secondary_shards(plan) ? 1 / m : 1;
        const double gather = load.unit_again + first * (load.unit_gather - load.unit_again);
        forward = pace(gather * units, forward, costs.slowdown);
        const double reduce = load.unit_reduce + across * load.unit_across;
        backward = pace((again + reduce) * units, backward, costs.slowdown);
        tail += load.unit_gather + reduce;
      } else if (plan.has_parameter_server()) {
        tail += m * (costs.through_root + load.gather + load.reduce);
      } else if (plan.replicas() > 1) {
        const double times_reduced = plan.reduces_each_microbatch() ? m : 1;
        const double reduce = load.reduce + across * load.across;
        const double least = reduce / load.buckets;
        const Hidden hidden = hide(reduce, backward, costs.slowdown);
        const double exposed = plan.overlap_gradient_reduce
                                   ? std::max(hidden.exposed, least) + hidden.contention
                                   : reduce;
        tail += times_reduced * exposed;
        tail += plan.overlap_parameter_gather ? hide(load.gather, forward, 0).exposed : load.gather;
      }
      forward = std::max(forward, load.unit_fetch * (layers_of(load) + 1));
      backward = std::max(backward, load.unit_fetch * (layers_of(load) + 1));
      longest = std::max(longest, pipeline.turns * (forward + backward) + tail);
    }
    const double host =
        plan.offload.optimizer || plan.offload.parameters ? offload_time(plan, loads) : 0;
    return longest + pipeline.fill * mean + pipeline.hops * costs.transfer + host;
  }

  double layers_of(const Load& load) const {
    double layers = load.segments[kDense] + load.segments[kExpert];
    for (std::size_t of = kNumSegmentShapes; of < classes_; ++of) layers += load.segments[of];
    return layers;
  }

  // [B/s] to or from the host, of one of the GPUs that share a switch's link.
  double host_link() const {
    const Cluster& cluster = *setup_.cluster;
    return std::max(cluster.gpu.pcie.bandwidth.value, 1e9) *
           setup_.tables.collectives.constants.host_copy_fraction /
           std::clamp(cluster.pcie.gpus_per_switch, 1, std::max(1, cluster.gpus_per_node));
  }

  // [B/s] to or from where a plan's offloaded state rests, in one direction, for each GPU of a
  // node.
  double away_link(const Plan& plan, BytesPerSecond drives) const {
    const double host = host_link();
    if (plan.offload_to != OffloadTarget::Nvme || drives.value <= 0) return host;
    return std::min(host, drives.value / ranks_of_node(plan));
  }
  std::int32_t ranks_of_node(const Plan& plan) const {
    return std::min(plan.gpus(), setup_.cluster->gpus_per_node);
  }

  // What the end of the step adds [ns]. Where the device updates: what it lacks comes and goes at
  // once in both directions. Where the host does: gradients go there, and its update; parameters
  // that do not stay there follow meanwhile.
  double offload_time(const Plan& plan, const std::vector<Load>& loads) const {
    double owned = 0;
    for (const Load& load : loads) owned = std::max(owned, updated(plan, load));
    const Cluster& cluster = *setup_.cluster;
    const double states = plan.offload.optimizer ? static_cast<double>(state_bytes(plan, 1)) : 0;
    const double parameters = plan.offload.parameters ? plan.precision.parameters : 0;
    const double written = away_link(plan, cluster.nvme.write);
    if (!plan.updates_on_host()) {
      const double slower = std::min(written, away_link(plan, cluster.nvme.read));
      return 1e9 * owned * (states + parameters) / slower;
    }
    const double host = setup_.tables.collectives.constants.host_update_rate *
                        std::max(1, cluster.host.sockets) / ranks_of_node(plan);
    const double down = 1e9 * owned * plan.precision.gradients / written;
    const double update =
        1e9 * owned * static_cast<double>(optimizer_bytes_per_parameter(plan)) / host;
    if (plan.offload_to != OffloadTarget::Nvme || !cluster.nvme.known()) return down + update;
    // Gradients and states come and states go.
    const auto ns = [&](double bytes, const BytesPerSecond& rate) {
      return to_nanoseconds(1e9 * owned * ranks_of_node(plan) * bytes / rate.value);
    };
    const Nanoseconds swapped = swapped_update_time(
        {.read = ns(plan.precision.gradients + states, cluster.nvme.read),
         .update = to_nanoseconds(update) + ns(parameters, cluster.nvme.write),
         .written = ns(states, cluster.nvme.write),
         .pipeline = plan.runtime.swap_pipeline,
         .parts = std::ceil(owned / static_cast<double>(plan.runtime.swap_elements))});
    return down + static_cast<double>(swapped.value);
  }

  const SearchSetup& setup_;
  const Transformer& model_;
  const std::size_t classes_ = segment_classes(model_);
  PipelineTimes& times_;
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
