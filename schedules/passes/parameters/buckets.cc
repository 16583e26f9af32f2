// SPDX-License-Identifier: Apache-2.0
// Whole segments' parameters into flat buckets. Inside a bucket first the tensors whose gradient is
// partial over tp (one range to reduce), then the rest; padded so that every dp shard is equal.
#include <algorithm>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

struct Sums {
  std::int64_t partial = 0, elements = 0;
  std::int32_t tensors = 0;
};

// Which bucket a tensor lies in: its segment's own, that of a tied table, that of folded experts.
enum class BucketPart : std::uint8_t { Own, Table, Experts };
BucketPart part_of(const ParameterTensor& tensor, bool tied, bool folds) {
  if (tied && tensor.table) return BucketPart::Table;
  return folds && tensor.expert ? BucketPart::Experts : BucketPart::Own;
}

// Tensors of a segment in one of its buckets.
Sums sums_of(const std::vector<ParameterTensor>& tensors, bool tied, bool folds,
             BucketPart wanted) {
  Sums sums;
  for (const ParameterTensor& tensor : tensors) {
    if (part_of(tensor, tied, folds) != wanted) continue;
    sums.partial += tensor.partial ? tensor.elements : 0;
    sums.elements += tensor.elements;
    ++sums.tensors;
  }
  return sums;
}

// segment_parameters, once for each class of segments: it is the same for all dense layers, and for
// all with experts. Prediction layers are few, and the first may have a table.
class TensorLists {
 public:
  explicit TensorLists(const Layout& layout) : layout_(layout) {}

  const std::vector<ParameterTensor>& of(const SegmentInfo& segment) {
    const bool prediction = segment_shape(layout_.model, segment) == SegmentShape::PredictionLayer;
    const std::int64_t number = prediction ? segment.layer - layout_.model.layers : 0;
    std::vector<ParameterTensor>& list = lists_[{segment_class(layout_.model, segment), number}];
    if (list.empty()) list = segment_parameters(layout_, segment.kind, segment.layer);
    return list;
  }

 private:
  const Layout& layout_;
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<ParameterTensor>> lists_;
};

// A, B, ..., Z, AA, ... without E, H, T, the buckets of embedding, head and tied table, and L,
// which begins those of single layers.
std::string letters(std::int32_t n) {
  constexpr std::string_view kLetters = "ABCDFGIJKMNOPQRSUVWXYZ";
  constexpr std::int32_t kCount = static_cast<std::int32_t>(kLetters.size());
  std::string text;
  for (++n; n > 0; n = (n - 1) / kCount)
    text.insert(text.begin(), kLetters[static_cast<std::size_t>((n - 1) % kCount)]);
  return text;
}

// Where the tensors of a position's buckets lie: first what is partial over tp, then the rest.
void place_tensors(Schedule& s, const std::vector<std::vector<SegmentBuckets>>& of,
                   TensorLists& lists) {
  std::vector<std::array<std::int64_t, 2>> used(s.buckets.size());
  std::vector<bool> known(s.buckets.size(), false);
  const auto place = [&](BucketId id, Stage stage, std::size_t segment,
                         const std::vector<ParameterTensor>& tensors, std::size_t tensor) {
    const ParameterTensor& what = tensors[tensor];
    std::int64_t& end = used[id.index()][what.partial ? 0 : 1];
    s.tensors.push_back({.bucket = id,
                         .stage = stage,
                         .segment = static_cast<std::int32_t>(segment),
                         .tensor = static_cast<std::int32_t>(tensor),
                         .offset = end + (what.partial ? 0 : s.buckets[id.index()].partial)});
    end += what.elements;
    known[id.index()] = true;
  };
  for (Stage stage{0}; stage.index() < of.size(); ++stage.value) {
    for (std::size_t g = 0; g < of[stage.index()].size(); ++g) {
      const auto& [own, table, experts] = of[stage.index()][g];
      const auto& tensors = lists.of(s.segments[stage.index()][g]);
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        const BucketId at = tensors[k].table && table      ? table
                            : tensors[k].expert && experts ? experts
                                                           : own;
        place(at, stage, g, tensors, k);
      }
      if (table && !known[table.index()]) {  // the head's, whose own tensors lack it
        place(table, stage, g, lists.of({SegmentKind::Embedding, -1}), 0);
      }
    }
  }
}

struct Open {  // a bucket that still takes segments
  BucketPart part = BucketPart::Own;
  Sums sums;
  std::vector<std::pair<Stage, std::int32_t>> segments;  // (stage, segment in it), backward order
};

// Equal on both positions of a bidirectional stage, and no other bucket's.
std::int32_t identity(const Open& from) {
  constexpr std::int32_t kSegments = 1 << 15;
  const auto& [stage, segment] = from.segments.front();
  return (stage.value * 2 + (from.part == BucketPart::Experts ? 1 : 0)) * kSegments + segment;
}

}  // namespace

// A bucket is closed once its gradients reach bucket_bytes; 0: one per position. ZeRO-3 gathers
// what it needs next, so there every bucket ends with a layer at the latest. So it does where our
// runtime shards gradients, which are whole for one bucket at a time, and where its optimizer state
// comes from the host, bucket by bucket. No bucket spans the stages of two directions (their
// replicas are summed bucket by bucket), nor two chunks whose reductions start one by one. Folded
// experts have other replicas than the rest: buckets of their own, by the same rules.
void make_buckets(Draft& draft) {
  Schedule& s = draft.schedule;
  const Plan& plan = draft.plan;
  const bool bidirectional = !s.placement.up.empty();
  const bool by_layer = plan.gathers_units() || cuts_for_gradients(plan) || plan.streams_state();
  // Megatron has buffers of their own for every chunk, which start together on all positions.
  const bool by_chunk = plan.runtime.aligned_reductions && plan.overlap_gradient_reduce;
  const bool tied = draft.layout.model.tied_embedding, folds = plan.folds_experts();
  std::int32_t composites = 0;
  TensorLists lists(draft.layout);
  for (const auto& stage : s.segments) {
    for (const SegmentInfo& segment : stage) {
      for (const ParameterTensor& tensor : lists.of(segment))
        draft.num_tensors += tensor.norm_slots;
    }
  }
  draft.buckets_of.assign(static_cast<std::size_t>(s.placement.positions),
                          std::vector<std::vector<SegmentBuckets>>(s.segments.size()));
  for (Position position{0}; position.value < s.placement.positions; ++position.value) {
    auto& of = draft.buckets_of[position.index()];
    std::vector<Bucket> made;  // in backward order
    std::vector<Open> made_from;
    Open dense, experts{.part = BucketPart::Experts};
    const auto close = [&](Open& open) {
      if (open.segments.empty()) return;
      Bucket bucket{.position = position,
                    .partial = open.sums.partial,
                    .elements = open.sums.elements,
                    .tensors = open.sums.tensors};
      const bool of_experts = open.part == BucketPart::Experts;
      if (of_experts) bucket.replicas = GroupKind::ExpertData;
      const auto& [stage, segment] = open.segments.front();
      const SegmentInfo& info = s.segments[stage.index()][static_cast<std::size_t>(segment)];
      if (open.segments.size() > 1) {
        bucket.name = letters(composites++);
      } else if (info.kind == SegmentKind::Layer) {
        bucket.name = (of_experts ? "X" : "L") + std::to_string(info.layer);
      } else {
        bucket.name = of_experts ? "XH" : info.kind == SegmentKind::Embedding ? "E" : "H";
      }
      made.push_back(std::move(bucket));
      made_from.push_back(std::move(open));
      open = {.part = made_from.back().part};
    };
    for (std::int32_t stage = s.placement.stages(); stage-- > 0;) {
      const Stage at{stage};
      const bool here = s.placement.down[at.index()] == position ||
                        (bidirectional && s.placement.up[at.index()] == position);
      if (!here) continue;
      const auto& segments = s.segments[at.index()];
      of[at.index()].resize(segments.size());
      for (std::size_t g = segments.size(); g-- > 0;) {
        const auto& tensors = lists.of(segments[g]);
        const bool uses_table = tied && segments[g].kind != SegmentKind::Layer;
        const auto add_table = [&] {
          const bool known =
              std::any_of(made.begin(), made.end(), [](const Bucket& b) { return b.tied; });
          if (!uses_table || known) return;
          const Sums sums =
              sums_of(lists.of({SegmentKind::Embedding, -1}), true, folds, BucketPart::Table);
          made.push_back({.name = "T",
                          .position = position,
                          .partial = sums.partial,
                          .elements = sums.elements,
                          .tensors = sums.tensors,
                          .tied = true});
          made_from.push_back({});
        };
        if (segments[g].kind == SegmentKind::Head) add_table();
        const bool layer_ends = by_layer && segments[g].kind == SegmentKind::Layer;
        for (Open* open : {&experts, &dense}) {
          const Sums sums = sums_of(tensors, tied, folds, open->part);
          if (sums.elements > 0) {
            open->segments.emplace_back(at, static_cast<std::int32_t>(g));
            open->sums.partial += sums.partial;
            open->sums.elements += sums.elements;
            open->sums.tensors += sums.tensors;
          }
          const bool full = plan.bucket_bytes > 0 && 4 * open->sums.elements >= plan.bucket_bytes;
          if (full || layer_ends || ((bidirectional || by_chunk) && g == 0)) close(*open);
        }
        if (segments[g].kind == SegmentKind::Embedding) {
          close(experts);
          close(dense);
          add_table();
        }
      }
    }
    close(experts);
    close(dense);
    for (std::size_t i = made.size(); i-- > 0;) {  // forward order
      const BucketId id{static_cast<std::int32_t>(s.buckets.size())};
      Bucket& bucket = made[i];
      if (plan.shard_group > 0) bucket.replicas = GroupKind::Shard;
      const std::int64_t unit = s.replicas(bucket) * std::int64_t{64};
      bucket.padded = (bucket.elements + unit - 1) / unit * unit;
      for (const auto& [stage, segment] : made_from[i].segments) {
        SegmentBuckets& its = of[stage.index()][static_cast<std::size_t>(segment)];
        (made_from[i].part == BucketPart::Experts ? its.experts : its.own) = id;
      }
      if (bucket.tied) {
        for (std::size_t stage = 0; stage < of.size(); ++stage) {
          for (std::size_t g = 0; g < of[stage].size(); ++g) {
            if (s.segments[stage][g].kind != SegmentKind::Layer) of[stage][g].table = id;
          }
        }
      }
      draft.identity_of.push_back(bucket.tied ? -1 : identity(made_from[i]));
      s.buckets.push_back(std::move(bucket));
    }
    place_tensors(s, of, lists);
  }
}

}  // namespace rehearse
