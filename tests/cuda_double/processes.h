// SPDX-License-Identifier: Apache-2.0
// Training over NCCL's double: a "process" is a thread that holds one rank.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "exec/run/processes.h"
#include "tests/cuda_double/prepared.h"

namespace rehearse::exec {

struct Shared {  // the store of the run
  std::mutex mutex;
  std::condition_variable changed;
  std::string id;
  std::vector<std::string> choices;  // by process
  std::size_t chosen = 0;            // processes
};

struct Outcome {
  std::vector<double> losses, norms;
  std::string error;
};

// What a process does beside training: a fault, if it is its turn.
using Sabotage =
    std::function<void(std::int32_t process, std::int64_t step, Communicator&, Device&)>;

struct Faults {
  double timeout_s = 120;
  Sabotage sabotage = nullptr;
  std::int32_t dead = -1;   // this process ends without a word
  std::int64_t before = 1;  // this step; -1: before it connects
  double begin_scale = 0;   // of fp16's loss; 0: the rule's
  std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap = nullptr;
  // Around the trials of kernels: before a process's, and when all have made theirs, by the last.
  std::function<void(std::int32_t process)> before_trials = nullptr;
  std::function<void()> tried = nullptr;
  bool alike = true;  // all take the choices of the first that has them, as a run does
  std::function<void()> ended = [] {};  // a process has its outcome, and is not torn down yet
};

inline std::vector<Outcome> train_with_nccl(Prepared& p, const Faults& faults) {
  const Mesh mesh(p.plan);
  const GroupInstances groups(p.schedule, mesh);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(mesh.ranks()));
  Shared shared;
  shared.choices.resize(outcomes.size());
  std::vector<std::thread> processes;
  for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
    processes.emplace_back([&, r] {
      Outcome& out = outcomes[static_cast<std::size_t>(r)];
      Backend backend = std::move(cuda::make_backend(cuda_options(p, faults.timeout_s))).value();
      NcclOptions options{.process = r,
                          .processes = mesh.ranks(),
                          .groups = &groups,
                          .edges = transfer_edges(p.schedule, mesh),
                          .meetings = meetings({p.scenario.model, p.plan}, p.schedule, groups)};
      options.share = [&](const std::string& mine) -> Result<std::string> {
        std::unique_lock lock(shared.mutex);
        if (r == 0) {
          shared.id = mine;
          shared.changed.notify_all();
        }
        shared.changed.wait(lock, [&] { return !shared.id.empty(); });
        return shared.id;
      };
      if (r == faults.dead && faults.before < 0) return;
      Result<std::unique_ptr<Communicator>> nccl = cuda::make_nccl(*backend.device, options);
      if (!nccl) {
        out.error = nccl.error().message;
        return;
      }
      if (faults.wrap) backend.device = faults.wrap(std::move(backend.device));
      const auto made = Interpreter::create({p.scenario.model, p.plan}, p.schedule, backend,
                                            {.communicator = nccl.value().get()});
      if (!made) {
        out.error = made.error().message;
        return;
      }
      Interpreter& process = *made.value();
      if (faults.before_trials) faults.before_trials(r);
      const Result<> tried = process.try_kernels();
      EXPECT_TRUE(tried) << tried.error().message;
      if (p.plan.precision.compute != ComputeType::Fp32) {  // else there is nothing to choose
        std::unique_lock lock(shared.mutex);
        shared.choices[static_cast<std::size_t>(r)] = backend.kernels->choices();
        if (++shared.chosen == shared.choices.size() && faults.tried) faults.tried();
        shared.changed.notify_all();
        shared.changed.wait(lock, [&] { return shared.chosen == shared.choices.size(); });
        if (faults.alike) backend.kernels->take_choices(first_lines(shared.choices));
      }
      process.initialise(initial_values(p.scenario.model, p.scenario.train.seed));
      const Result<Data> data =
          Data::open("synthetic", p.scenario.model.vocabulary, p.scenario.train.seed);
      LossScale scale = begin_loss_scale(p.plan, p.scenario.train, {.scale = faults.begin_scale});
      for (std::int64_t step = 0; step < p.scenario.train.steps; ++step) {
        if (faults.sabotage) faults.sabotage(r, step, *nccl.value(), *backend.device);
        if (r == faults.dead && step == faults.before) return;
        load_batch(process, p.plan, data.value(), step * p.plan.global_batch);
        const auto ran = process.run({.step = step,
                                      .skipped = scale.skipped,
                                      .learning_rate = p.scenario.train.learning_rate,
                                      .loss_scale = scale.scale,
                                      .train = p.scenario.train});
        if (!ran) {
          out.error = ran.error().message;
          break;
        }
        update_loss_scale(p.scenario.train, ran.value().skipped, scale);
        out.losses.push_back(ran.value().loss);
        out.norms.push_back(ran.value().grad_norm);
      }
      faults.ended();
    });
  }
  for (std::thread& process : processes) process.join();
  return outcomes;
}

}  // namespace rehearse::exec
