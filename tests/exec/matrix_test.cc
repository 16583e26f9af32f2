// Every layout trains like one rank: the same losses, gradient norms and weights after four steps.
//
// Bitwise where the layout adds in the same order: pipelines, recomputation. Within 1e-5, relative,
// where sums are split (tp, dp, ZeRO) or a second replica takes half of the micro-batches.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/exec/layout_case.h"

namespace rehearse::exec {
namespace {

enum class Equal { Bitwise, Close };

struct Cell {
  const char* name;
  Family family;
  Equal equal;
  std::vector<std::string> plan;
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name;
}

using enum Family;
using enum Equal;

const Cell kCells[] = {
    // --- pipelines, bitwise; breadth-first runs the backwards in reverse ---
    {"naive_pp2", Gpt2, Bitwise, {"pipeline_parallel=2", "schedule=naive"}},
    {"naive_pp4", Llama, Bitwise, {"pipeline_parallel=4", "schedule=naive"}},
    {"gpipe_pp2", Gpt2, Bitwise, {"pipeline_parallel=2", "schedule=gpipe"}},
    {"gpipe_pp8", Gpt2, Bitwise, {"pipeline_parallel=8", "schedule=gpipe"}},
    {"one_f_one_b_pp2", Gpt2, Bitwise, {"pipeline_parallel=2", "schedule=1f1b"}},
    {"one_f_one_b_pp4", Llama, Bitwise, {"pipeline_parallel=4", "schedule=1f1b"}},
    {"one_f_one_b_pp4_untied", Gpt2Untied, Bitwise, {"pipeline_parallel=4", "schedule=1f1b"}},
    {"one_f_one_b_uneven",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=1f1b", "stage_layers=[3,5]"}},
    {"eager_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=eager_1f1b"}},
    {"interleaved_pp2_v2",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=interleaved_1f1b", "virtual_stages=2"}},
    {"interleaved_pp4_v2",
     Llama,
     Bitwise,
     {"pipeline_parallel=4", "schedule=interleaved_1f1b", "virtual_stages=2"}},
    {"looped_bfs_pp2_v2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=looped_bfs", "virtual_stages=2"}},
    {"looped_bfs_pp4_v2",
     Llama,
     Close,
     {"pipeline_parallel=4", "schedule=looped_bfs", "virtual_stages=2"}},
    {"zb_h1_pp2", Gpt2, Bitwise, {"pipeline_parallel=2", "schedule=zb_h1"}},
    {"zb_h1_pp4", Llama, Bitwise, {"pipeline_parallel=4", "schedule=zb_h1"}},
    {"zb_h2_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=zb_h2"}},
    {"zb_v_pp2", Gpt2, Bitwise, {"pipeline_parallel=2", "schedule=zb_v"}},
    {"zb_v_pp4", Llama, Bitwise, {"pipeline_parallel=4", "schedule=zb_v"}},
    {"v_half_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=v_half"}},
    {"v_min_pp4", Gpt2Untied, Bitwise, {"pipeline_parallel=4", "schedule=v_min"}},
    {"one_f_one_b_v_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=1f1b_v"}},
    {"interleaved_zb1p_pp2",
     Llama,
     Bitwise,
     {"pipeline_parallel=2", "schedule=interleaved_zb1p", "virtual_stages=2"}},
    {"dualpipev_pp2", Gpt2, Bitwise, {"pipeline_parallel=2", "schedule=dualpipev"}},
    {"dualpipev_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=dualpipev"}},
    {"zb_1p_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=zb_1p"}},
    // --- recomputation, bitwise ---
    {"selective", Gpt2, Bitwise, {"recompute=selective"}},
    {"full", Gpt2, Bitwise, {"recompute=full"}},
    {"full_llama", Llama, Bitwise, {"recompute=full"}},
    {"selective_pp2",
     Llama,
     Bitwise,
     {"pipeline_parallel=2", "schedule=1f1b", "recompute=selective"}},
    {"full_zb_h1_pp4", Gpt2, Bitwise, {"pipeline_parallel=4", "schedule=zb_h1", "recompute=full"}},
    {"full_zb_v_pp2", Llama, Bitwise, {"pipeline_parallel=2", "schedule=zb_v", "recompute=full"}},
    // --- offload: to another arena and back ---
    {"offload_optimizer", Gpt2, Bitwise, {"offload=optimizer"}},
    {"offload_optimizer_one_by_one", Gpt2Untied, Bitwise, {"offload=optimizer", "prefetch=0"}},
    {"offload_optimizer_pp2",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=1f1b", "offload=optimizer", "prefetch=2"}},
    {"offload_activations", Gpt2, Bitwise, {"offload=activations"}},
    {"offload_activations_pp2",
     Llama,
     Bitwise,
     {"pipeline_parallel=2", "schedule=1f1b", "offload=activations"}},
    {"offload_activations_at_once_pp2",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=gpipe", "offload=activations", "prefetch=0"}},
    {"offload_activations_interleaved",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=interleaved_1f1b", "virtual_stages=2", "offload=activations",
      "prefetch=2"}},
    {"offload_activations_zb_h1_pp4",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=4", "schedule=zb_h1", "offload=activations"}},
    {"offload_activations_zb_v_pp2",
     Llama,
     Bitwise,
     {"pipeline_parallel=2", "schedule=zb_v", "offload=activations"}},
    {"offload_activations_dualpipev_pp2",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=dualpipev", "offload=activations"}},
    {"offload_activations_full",
     Gpt2,
     Bitwise,
     {"pipeline_parallel=2", "schedule=1f1b", "recompute=full", "offload=activations"}},
    {"offload_activations_tp2_sp",
     Llama,
     Close,
     {"tensor_parallel=2", "sequence_parallel=true", "offload=activations"}},
    {"offload_activations_cp2", Gpt2, Close, {"context_parallel=2", "offload=activations"}},
    {"offload_activations_zero3",
     Llama,
     Close,
     {"data_parallel=2", "zero_stage=3", "offload=activations"}},
    {"offload_optimizer_zero1",
     Gpt2,
     Close,
     {"data_parallel=2", "zero_stage=1", "offload=optimizer"}},
    {"offload_optimizer_zero2_pp2",
     Llama,
     Close,
     {"data_parallel=2", "zero_stage=2", "pipeline_parallel=2", "schedule=1f1b",
      "offload=optimizer"}},
    {"offload_optimizer_zero3",
     Gpt2,
     Close,
     {"data_parallel=2", "zero_stage=3", "offload=optimizer"}},
    {"offload_optimizer_server",
     Gpt2,
     Close,
     {"data_parallel=2", "data_parallel_algorithm=parameter_server", "offload=optimizer"}},
    {"offload_optimizer_slices",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "offload=optimizer"}},
    // --- a second replica ---
    {"chimera_pp2", Gpt2, Close, {"pipeline_parallel=2", "schedule=chimera"}},
    {"chimera_pp4", Llama, Close, {"pipeline_parallel=4", "schedule=chimera"}},
    {"dualpipe_pp2", Gpt2, Close, {"pipeline_parallel=2", "schedule=dualpipe"}},
    {"dualpipe_pp4", Llama, Close, {"pipeline_parallel=4", "schedule=dualpipe"}},
    // --- tensor and sequence parallel ---
    {"tp2", Gpt2, Close, {"tensor_parallel=2"}},
    {"tp4", Gpt2, Close, {"tensor_parallel=4"}},
    {"tp2_llama", Llama, Close, {"tensor_parallel=2"}},
    {"tp2_sp", Gpt2, Close, {"tensor_parallel=2", "sequence_parallel=true"}},
    {"tp4_sp", Gpt2Untied, Close, {"tensor_parallel=4", "sequence_parallel=true"}},
    {"tp2_sp_llama", Llama, Close, {"tensor_parallel=2", "sequence_parallel=true"}},
    {"tp2_sp_selective",
     Gpt2,
     Close,
     {"tensor_parallel=2", "sequence_parallel=true", "recompute=selective"}},
    {"tp2_sp_full",
     Llama,
     Close,
     {"tensor_parallel=2", "sequence_parallel=true", "recompute=full"}},
    // --- key/value heads that several ranks hold ---
    {"tp2_one_head", LlamaOneHead, Close, {"tensor_parallel=2"}},
    {"tp4_one_head", LlamaOneHead, Close, {"tensor_parallel=4"}},
    {"tp4_two_heads", Llama, Close, {"tensor_parallel=4"}},
    {"tp4_sp_two_heads_full",
     Llama,
     Close,
     {"tensor_parallel=4", "sequence_parallel=true", "recompute=full"}},
    {"tp2_sp_pp2_one_head",
     LlamaOneHead,
     Close,
     {"tensor_parallel=2", "sequence_parallel=true", "pipeline_parallel=2", "schedule=zb_h1"}},
    {"tp4_dp2_zero2_two_heads",
     Llama,
     Close,
     {"tensor_parallel=4", "data_parallel=2", "zero_stage=2"}},
    {"tp2_cp2_one_head", LlamaOneHead, Close, {"tensor_parallel=2", "context_parallel=2"}},
    // --- data parallel ---
    {"ddp2", Gpt2, Close, {"data_parallel=2"}},
    {"ddp2_overlap",
     Gpt2,
     Close,
     {"data_parallel=2", "overlap={\"gradient_reduce\":true}", "bucket_bytes=65536"}},
    {"ddp4", Llama, Close, {"data_parallel=4"}},
    {"ddp8", Gpt2, Close, {"data_parallel=8"}},
    {"parameter_server2",
     Gpt2,
     Close,
     {"data_parallel=2", "data_parallel_algorithm=parameter_server"}},
    {"parameter_server4",
     Llama,
     Close,
     {"data_parallel=4", "data_parallel_algorithm=parameter_server"}},
    {"zero1_dp2", Gpt2, Close, {"data_parallel=2", "zero_stage=1"}},
    {"zero1_dp4_overlap",
     Llama,
     Close,
     {"data_parallel=4", "zero_stage=1", "bucket_bytes=65536",
      "overlap={\"gradient_reduce\":true,\"parameter_gather\":true}"}},
    {"zero2_dp2", Gpt2, Close, {"data_parallel=2", "zero_stage=2"}},
    {"zero2_dp4", Llama, Close, {"data_parallel=4", "zero_stage=2"}},
    {"zero3_dp2", Gpt2, Close, {"data_parallel=2", "zero_stage=3"}},
    {"zero3_dp4", Llama, Close, {"data_parallel=4", "zero_stage=3"}},
    {"zero3_dp8", Gpt2Untied, Close, {"data_parallel=8", "zero_stage=3"}},
    {"zero3_dp2_full", Gpt2, Close, {"data_parallel=2", "zero_stage=3", "recompute=full"}},
    // --- context parallel ---
    {"cp2", Gpt2, Close, {"context_parallel=2"}},
    {"cp4", Gpt2, Close, {"context_parallel=4"}},
    {"cp8", Llama, Close, {"context_parallel=8"}},
    {"cp2_llama", Llama, Close, {"context_parallel=2"}},
    {"cp2_samples", Gpt2, Close, {"context_parallel=2", "micro_batch=2"}},
    {"cp4_samples_llama", Llama, Close, {"context_parallel=4", "micro_batch=4"}},
    {"cp2_selective", Llama, Close, {"context_parallel=2", "recompute=selective"}},
    {"cp4_full", Gpt2, Close, {"context_parallel=4", "recompute=full"}},
    {"cp2_zero1", Gpt2, Close, {"context_parallel=2", "zero_stage=1"}},
    {"cp4_zero2", Llama, Close, {"context_parallel=4", "zero_stage=2"}},
    {"cp2_dp2_zero3", Gpt2, Close, {"context_parallel=2", "data_parallel=2", "zero_stage=3"}},
    {"cp2_pp2_zb_h1",
     Llama,
     Close,
     {"context_parallel=2", "pipeline_parallel=2", "schedule=zb_h1", "recompute=full"}},
    {"cp2_tp2_sp",
     Gpt2,
     Close,
     {"context_parallel=2", "tensor_parallel=2", "sequence_parallel=true", "micro_batch=2"}},
    {"cp2_tp2_pp2",
     Llama,
     Close,
     {"context_parallel=2", "tensor_parallel=2", "pipeline_parallel=2", "schedule=1f1b"}},
    {"cp2_tp2_sp_pp2_dp2_zero1",
     Llama,
     Close,
     {"context_parallel=2", "tensor_parallel=2", "sequence_parallel=true", "pipeline_parallel=2",
      "data_parallel=2", "schedule=interleaved_1f1b", "virtual_stages=2", "zero_stage=1",
      "overlap={\"gradient_reduce\":true,\"parameter_gather\":true}"}},
    // --- slices of the sequence ---
    {"seq_1f1b_pp2_2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2"}},
    {"seq_1f1b_pp2_4",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=4"}},
    {"seq_1f1b_pp4_4_samples",
     Gpt2,
     Close,
     {"pipeline_parallel=4", "schedule=seq_1f1b", "sequence_slices=4", "micro_batch=2"}},
    {"seq_1f1b_pp2_2_selective",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "recompute=selective"}},
    {"seq_1f1b_pp2_4_full",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=4", "recompute=full"}},
    {"seq_1f1b_pp2_2_tp2_sp_dp2_zero1",
     Gpt2Untied,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "tensor_parallel=2",
      "sequence_parallel=true", "data_parallel=2", "zero_stage=1", "bucket_bytes=65536",
      "overlap={\"gradient_reduce\":true}"}},
    {"seq_1f1b_pp2_2_dp2_zero2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "data_parallel=2",
      "zero_stage=2"}},
    {"seq_1f1b_pp2_2_dp2_zero3",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "data_parallel=2",
      "zero_stage=3"}},
    {"seq_1f1b_pp2_2_tp2_one_head",
     LlamaOneHead,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "tensor_parallel=2"}},
    // --- slices whose keys and values lie round a ring ---
    {"seq_1f1b_pp2_2_cp2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "context_parallel=2"}},
    {"seq_1f1b_pp2_4_cp2",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=4", "context_parallel=2"}},
    {"seq_1f1b_pp2_4_cp2_full",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=4", "context_parallel=2",
      "recompute=full"}},
    {"seq_1f1b_pp2_2_cp2_selective",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "context_parallel=2",
      "recompute=selective"}},
    {"seq_1f1b_pp2_2_cp4_samples",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "context_parallel=4",
      "micro_batch=2"}},
    {"seq_1f1b_4_cp2",
     Gpt2Untied,
     Close,
     {"schedule=seq_1f1b", "sequence_slices=4", "context_parallel=2"}},
    {"seq_1f1b_pp2_2_cp2_tp2_one_head",
     LlamaOneHead,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "context_parallel=2",
      "tensor_parallel=2"}},
    {"seq_1f1b_pp2_2_cp2_tp2_sp_zero1",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_1f1b", "sequence_slices=2", "context_parallel=2",
      "tensor_parallel=2", "sequence_parallel=true", "zero_stage=1", "bucket_bytes=65536",
      "overlap={\"gradient_reduce\":true}"}},
    // --- slices with a split backward ---
    {"seq_zb_h1_pp2_2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_zb_h1", "sequence_slices=2"}},
    {"seq_zb_h1_pp4_4",
     Llama,
     Close,
     {"pipeline_parallel=4", "schedule=seq_zb_h1", "sequence_slices=4"}},
    {"seq_zb_h1_pp2_4_full",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_zb_h1", "sequence_slices=4", "recompute=full"}},
    {"seq_zb_h1_pp4_2_selective",
     Llama,
     Close,
     {"pipeline_parallel=4", "schedule=seq_zb_h1", "sequence_slices=2", "recompute=selective"}},
    {"seq_zb_h1_pp2_2_dp2_zero2",
     Gpt2Untied,
     Close,
     {"pipeline_parallel=2", "schedule=seq_zb_h1", "sequence_slices=2", "data_parallel=2",
      "zero_stage=2"}},
    {"seq_zb_h1_pp2_2_cp2_full",
     Llama,
     Close,
     {"pipeline_parallel=2", "schedule=seq_zb_h1", "sequence_slices=2", "context_parallel=2",
      "recompute=full"}},
    {"seq_zb_h1_pp2_4_cp2_tp2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "schedule=seq_zb_h1", "sequence_slices=4", "context_parallel=2",
      "tensor_parallel=2"}},
    // --- products ---
    {"pp2_dp2_zero1",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "data_parallel=2", "schedule=1f1b", "zero_stage=1"}},
    {"pp2_dp2_zero2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "data_parallel=2", "schedule=1f1b", "zero_stage=2"}},
    {"pp2_dp2_zero3",
     Llama,
     Close,
     {"pipeline_parallel=2", "data_parallel=2", "schedule=1f1b", "zero_stage=3"}},
    {"pp2_tp2", Gpt2, Close, {"pipeline_parallel=2", "tensor_parallel=2", "schedule=1f1b"}},
    {"pp2_v2_tp2_sp",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "tensor_parallel=2", "sequence_parallel=true",
      "schedule=interleaved_1f1b", "virtual_stages=2"}},
    {"pp2_tp2_dp2_zero1",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2", "sequence_parallel=true",
      "schedule=interleaved_1f1b", "virtual_stages=2", "zero_stage=1", "recompute=selective",
      "bucket_bytes=65536", "overlap={\"gradient_reduce\":true,\"parameter_gather\":true}"}},
    {"pp2_tp2_dp2_zero3",
     Llama,
     Close,
     {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2", "sequence_parallel=true",
      "schedule=1f1b", "zero_stage=3"}},
    {"zb_h1_tp2_dp2_zero2",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2", "schedule=zb_h1",
      "zero_stage=2"}},
    {"zb_v_tp2_sp_dp2",
     Llama,
     Close,
     {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2", "sequence_parallel=true",
      "schedule=zb_v"}},
    {"chimera_tp2_dp2_zero1",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "tensor_parallel=2", "data_parallel=2", "schedule=chimera",
      "zero_stage=1"}},
    {"dualpipe_dp2_zero2",
     Llama,
     Close,
     {"pipeline_parallel=2", "data_parallel=2", "schedule=dualpipe", "zero_stage=2"}},
    {"dualpipev_dp2_zero3",
     Gpt2,
     Close,
     {"pipeline_parallel=2", "data_parallel=2", "schedule=dualpipev", "zero_stage=3"}},
};

// One rank, micro-batches one after another.
const Trained& reference(Family family) {
  static std::map<Family, Trained> known;
  const auto [at, fresh] = known.try_emplace(family);
  if (fresh) at->second = train_layout(family, {});
  return at->second;
}

class Matrix : public testing::TestWithParam<Cell> {};

TEST_P(Matrix, TrainsLikeOneRank) {
  const Cell& cell = GetParam();
  const Trained& one = reference(cell.family);
  ASSERT_EQ(one.error, "");
  const Trained many = train_layout(cell.family, cell.plan);
  ASSERT_EQ(many.error, "");
  const Distance far = distance(many, one);
  if (std::getenv("REHEARSE_DISTANCES") != nullptr) {
    std::printf("%-26s loss %.1e norm %.1e weight %.1e %s%s\n", cell.name, far.loss, far.norm,
                far.weight, far.tensor.c_str(), far.bitwise ? " bitwise" : "");
  }
  if (cell.equal == Bitwise) {
    EXPECT_TRUE(far.bitwise) << "loss " << far.loss << ", " << far.tensor << ' ' << far.weight;
  }
  EXPECT_LE(far.loss, 1e-5);
  EXPECT_LE(far.norm, 1e-5);
  EXPECT_LE(far.weight, 1e-5) << far.tensor;
  // Planned is used, to the byte.
  EXPECT_EQ(many.planned, many.counted);
  for (std::size_t row = 0; row < many.arena.size(); ++row)
    EXPECT_LE(many.planned[row], many.arena[row]);
}

TEST_P(Matrix, RunsAgainBitForBitWithTwoWorkers) {
  const Cell& cell = GetParam();
  const Trained alone = train_layout(cell.family, cell.plan, 1);
  ASSERT_EQ(alone.error, "");
  const Trained two = train_layout(cell.family, cell.plan, 2);
  ASSERT_EQ(two.error, "");
  EXPECT_TRUE(distance(two, alone).bitwise);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Matrix, testing::ValuesIn(kCells),
                         [](const auto& cell) { return std::string(cell.param.name); });

// An order that no generator makes: sliced 1F1B with a forward and a backward of different
// micro-batches paired wherever both are there.
std::string paired_slices(std::int32_t positions, std::int32_t microbatches, std::int32_t slices) {
  const auto op = [&](std::int32_t r, char kind, std::int32_t unit) {
    const std::int32_t slice = kind == 'F' ? unit % slices : slices - 1 - unit % slices;
    return std::to_string(r) + kind + std::to_string(unit / slices) + '.' + std::to_string(slice);
  };
  std::string orders;
  for (std::int32_t r = 0; r < positions; ++r) {
    const std::int32_t warmup = slices + positions - 1 - r, count = microbatches * slices;
    std::string row;
    for (std::int32_t i = 0; i < warmup; ++i) row += '"' + op(r, 'F', i) + "\",";
    for (std::int32_t i = 0; i < count; ++i) {
      const std::string backward = op(r, 'B', i);
      row += warmup + i < count
                 ? "\"(" + op(r, 'F', warmup + i) + ';' + backward + ")OVERLAP_F_B\","
                 : '"' + backward + "\",";
    }
    row.back() = ']';
    orders += (r > 0 ? ",[" : "[") + row;
  }
  return "{\"orders\":[" + orders + "]}";
}

// Slices are summed in one order, whatever pipeline they go through.
TEST(Slices, AreBitwiseTheSameInEveryPipeline) {
  const std::string file = testing::TempDir() + "paired_slices.json";
  std::ofstream(file) << paired_slices(2, 8, 2);
  const std::vector<std::string> pipelines[] = {
      {"schedule=seq_1f1b", "pipeline_parallel=2"},
      {"schedule=seq_1f1b", "pipeline_parallel=4", "recompute=full"},
      {"schedule=seq_zb_h1"},
      {"schedule=seq_zb_h1", "pipeline_parallel=2", "recompute=selective"},
      {"schedule=seq_zb_h1", "pipeline_parallel=4", "recompute=full"},
      {"schedule=file:" + file, "pipeline_parallel=2", "stage_layers=[4,4]"},
  };
  for (const bool ring : {false, true}) {
    const auto with = [&](std::vector<std::string> keys) {
      keys.emplace_back("sequence_slices=2");
      if (ring) keys.emplace_back("context_parallel=2");
      return keys;
    };
    const Trained one = train_layout(Llama, with({"schedule=seq_1f1b"}));
    ASSERT_EQ(one.error, "");
    for (const std::vector<std::string>& pipeline : pipelines) {
      const Trained many = train_layout(Llama, with(pipeline));
      ASSERT_EQ(many.error, "") << pipeline.front();
      EXPECT_TRUE(distance(many, one).bitwise) << pipeline.front() << (ring ? ", ring" : "");
      EXPECT_EQ(many.planned, many.counted) << pipeline.front();
    }
  }
  std::remove(file.c_str());
}

// That the comparison can fail: another seed's weights are far away.
TEST(Reference, LearnsAndDiffersFromOtherModels) {
  const Trained& one = reference(Family::Gpt2);
  ASSERT_EQ(one.error, "");
  EXPECT_NEAR(one.losses.front(), std::log(61.0), 0.05);  // uniform at the start: ln V
  EXPECT_LT(one.losses.back(), one.losses.front());
  const Trained slower = train_layout(Family::Gpt2, {"micro_batch=2"});
  ASSERT_EQ(slower.error, "");
  const Distance other = distance(slower, one);
  EXPECT_FALSE(other.bitwise);  // sums of other groups of samples
  EXPECT_LE(other.loss, 1e-5);
}

}  // namespace
}  // namespace rehearse::exec
