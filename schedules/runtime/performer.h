// SPDX-License-Identifier: Apache-2.0
// Who performs a schedule, our executor or a framework, question by question. Whoever must tell the
// two apart asks the question that he means; RuntimeTraits::performer() answers it. The defaults
// are the frameworks' answers: where these differ among themselves there is a trait (runtime.h).
#pragma once

namespace rehearse {

struct Performer {
  // Bodies and kernels are ours, with the launches that `calibrate` measures; else those that the
  // profile's traits describe.
  bool own_kernels = false;
  // The values of a step lie at planned places of one arena; else where a caching allocator puts
  // them, which is replayed from the profile's tensors.
  bool plans_arena = false;
  // A forward leaves slabs to its backward, the input of a part beside them; else tensors that
  // autograd holds, inputs among them, of which the schedule knows the sum alone.
  bool keeps_slabs = false;
  // The traits of the profile are all there is: a plan that asks for another value is refused.
  bool fixed_traits = false;
  // The loss makes its gradients with the forward, so that the backward reads no table of words.
  bool loss_gradient_with_forward = false;
  // Gradients under ZeRO-2 are reduced and freed bucket by bucket within every micro-batch.
  bool frees_reduced_gradients = false;
  // Gradients are summed in 4 bytes, whatever the plan's precision says of them.
  bool sums_in_fp32 = false;
  // The two uses of a tied table on one rank add to one gradient, replicas or not; else only where
  // replicas sum it, and without them the sums are those of a pipeline, whose ends hold a use each.
  bool one_table_gradient = true;
  // Parameters gathered ahead wait for memory; else for the compute before their window, as FSDP2
  // copies out one unit before it gathers the one after the next.
  bool gathers_wait_for_memory = false;
  // Optimizer state in host memory is updated by the host; else it passes through the device.
  bool updates_on_host = true;
  // Selective recomputation of a fused attention core makes its output again; else there is nothing
  // that it would save.
  bool remakes_fused_attention = false;
  // Dropout where neither plan nor model file says anything, and attention is no one kernel:
  // Megatron-LM's `--hidden-dropout`, `--attention-dropout`.
  double unsaid_dropout = 0.1;
  // The latent down projections of queries and of keys are one product.
  bool joins_latent_down = true;
  // Layers that predict further tokens run.
  bool predicts_further_tokens = true;
  // Experts that several ranks share may have biases.
  bool splits_expert_biases = false;
  // all_to_all may move slots of one size instead of as many rows as are routed.
  bool has_expert_slots = false;
  // A step counts the rows of every layer's experts, and the copies that they drop.
  bool counts_expert_rows = false;
  // What a backward computes again may stand apart from it, as an op of the order; else it runs
  // inside the backward, as autograd has it (torch.utils.checkpoint).
  bool places_recompute = false;
};

inline constexpr Performer kFrameworks{};
inline constexpr Performer kOurExecutor{.own_kernels = true,
                                        .plans_arena = true,
                                        .keeps_slabs = true,
                                        .fixed_traits = true,
                                        .loss_gradient_with_forward = true,
                                        .frees_reduced_gradients = true,
                                        .sums_in_fp32 = true,
                                        .one_table_gradient = false,
                                        .gathers_wait_for_memory = true,
                                        .updates_on_host = false,
                                        .remakes_fused_attention = true,
                                        .unsaid_dropout = 0,
                                        .joins_latent_down = false,
                                        .predicts_further_tokens = false,
                                        .splits_expert_biases = true,
                                        .has_expert_slots = true,
                                        .counts_expert_rows = true,
                                        .places_recompute = true};

}  // namespace rehearse
