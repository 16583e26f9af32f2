// SPDX-License-Identifier: Apache-2.0
// Who is to blame for a failed run, and what launchers say of a process.
#include <gtest/gtest.h>

#include <map>

#include "exec/processes/diagnosis.h"
#include "exec/processes/launch_environment.h"
#include "exec/step/observer.h"
#include "schedules/order/registry.h"
#include "schedules/ranks/unfold.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

using How = ProcessView::How;

// A two-stage pipeline, one rank per process unless said otherwise.
class Diagnosis : public testing::Test {
 protected:
  void SetUp() override {
    Result<Scenario> read = layout_scenario(Family::Gpt2, {"pipeline_parallel=2", "schedule=1f1b"});
    ASSERT_TRUE(read);
    plan = read.value().plan;
    Result<Schedule> lowered = lower_for_run(read.value().model, plan);
    ASSERT_TRUE(lowered);
    schedule = std::move(lowered).value();
    rows = rows_of_ranks(plan, schedule);
    ASSERT_EQ(rows.size(), 2U);
    Result<StatusBoard> made = StatusBoard::create(2);
    ASSERT_TRUE(made);
    board.emplace(std::move(made).value());
  }
  // The k-th op of a stream of a rank.
  OpId op(std::int32_t rank, Stream stream, int k) const {
    const RankClass row = rows[static_cast<std::size_t>(rank)];
    for (std::int32_t i = schedule.row_begin[row.index()]; i < schedule.row_begin[row.index() + 1];
         ++i) {
      if (schedule.ops[static_cast<std::size_t>(i)].stream == stream && k-- == 0) return {i};
    }
    return {};
  }
  FailureAttribution attributed(std::span<const ProcessView> views) const {
    return diagnose({schedule, rows, *board, views, 5});
  }
  Plan plan;
  Schedule schedule;
  std::vector<RankClass> rows;
  std::optional<StatusBoard> board;
};

// While tokens travel an op waits inside a layer, which is told on to other machines too.
TEST_F(Diagnosis, WhoDiesInALayersCollectiveIsNamedWithTheLayer) {
  Observer observer(*board);
  observer.step_began(1, 2);
  observer.op_began(1, 2, op(1, Stream::Compute, 0), Stream::Compute);
  observer.op_waits(1, Stream::Compute, waits_in_layer(5));
  const std::string heartbeat = status_bytes(*board, 1, 2);
  ProcessView views[2];
  views[1] = {.how = How::Killed, .code = 9};
  EXPECT_NE(attributed(views).line.find(" in 1F0, layer 5, of step 3"), std::string::npos)
      << attributed(views).line;
  observer.op_waits(1, Stream::Compute, waits_in_layer(-1));
  EXPECT_NE(attributed(views).line.find(" in 1F0 of step 3"), std::string::npos);
  apply_status(heartbeat, *board, 1, 2);
  EXPECT_NE(attributed(views).line.find(" in 1F0, layer 5,"), std::string::npos);
}

TEST_F(Diagnosis, ADeadProcessIsNamedWithItsOp) {
  Observer observer(*board);
  observer.step_began(1, 2);
  observer.op_began(1, 2, op(1, Stream::P2p, 0), Stream::P2p);
  observer.op_ended(1, Stream::P2p);
  observer.op_began(1, 2, op(1, Stream::Compute, 0), Stream::Compute);
  ProcessView views[2];
  views[0].report = FailureReport{FailureReport::Kind::PeerLost, 0, 3, "the connection is lost"};
  views[1] = {.how = How::Killed, .code = 9};
  const FailureAttribution found = attributed(views);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.exit_code, 3);
  EXPECT_EQ(found.line,
            "rank 1 was killed by signal 9 (Killed) in 1F0 of step 3, last finished 1RECV_F0");
}

TEST_F(Diagnosis, AStoppedProcessComesBeforeThoseThatWaitForIt) {
  Observer observer(*board);
  for (const std::int32_t rank : {0, 1}) observer.step_began(rank, 0);
  observer.op_began(1, 0, op(1, Stream::P2p, 0), Stream::P2p);
  observer.op_waits(1, Stream::P2p, 0);
  observer.op_began(0, 0, op(0, Stream::Compute, 0), Stream::Compute);
  ProcessView views[2];
  views[0].how = How::Stopped;
  views[1].report = FailureReport{FailureReport::Kind::Timeout, 1, 3, "no answer"};
  EXPECT_EQ(attributed(views).line, "rank 0 is stopped in 0F0 of step 1");
  views[0] = {.how = How::Silent, .silent_s = 7.5};
  EXPECT_EQ(attributed(views).line, "rank 0 has not been heard of for 7 s in 0F0 of step 1");
}

TEST_F(Diagnosis, AmongTheLivingTheStragglerHoldsUpTheOthers) {
  Observer observer(*board);
  for (const std::int32_t rank : {0, 1}) observer.step_began(rank, 0);
  observer.op_began(1, 0, op(1, Stream::P2p, 0), Stream::P2p);  // waits for rank 0's first forward
  observer.op_waits(1, Stream::P2p, 0);
  observer.op_began(0, 0, op(0, Stream::Compute, 0), Stream::Compute);
  ProcessView views[2];
  views[1].report = FailureReport{FailureReport::Kind::Timeout, 1, 3, "no answer"};
  EXPECT_EQ(attributed(views).line,
            "rank 0 holds up the others for longer than the timeout of 5 s in 0F0 of step 1");
  // Rank 0 has come to the transfer and waits for rank 1, which is a step behind.
  observer.step_began(0, 1);
  EXPECT_EQ(attributed(views).rank, 1);
}

TEST_F(Diagnosis, AProcessThatFailedItselfSpeaksForItself) {
  ProcessView views[2];
  views[0].report = FailureReport{FailureReport::Kind::Own, -1, 1, "training diverged"};
  views[1].report = FailureReport{FailureReport::Kind::PeerLost, 1, 3, "lost"};
  const FailureAttribution found = attributed(views);
  EXPECT_EQ(found.line, "training diverged");
  EXPECT_EQ(found.exit_code, 1);
}

TEST_F(Diagnosis, SeveralRanksOfOneProcessAreToldApart) {
  Observer observer(*board);
  for (const std::int32_t rank : {0, 1}) observer.step_began(rank, 0);
  observer.op_began(1, 0, op(1, Stream::P2p, 0), Stream::P2p);
  observer.op_waits(1, Stream::P2p, 0);
  observer.op_began(0, 0, op(0, Stream::Compute, 0), Stream::Compute);
  const ProcessView one{.how = How::Killed, .code = 11};
  EXPECT_EQ(attributed({&one, 1}).line,
            "rank 0 (process 0, ranks 0-1) was killed by signal 11 (Segmentation fault) in 0F0 of "
            "step 1");
}

TEST_F(Diagnosis, HeartbeatsCarryWhatTheBoardHolds) {
  Observer observer(*board);
  observer.step_began(1, 3);
  observer.op_began(1, 3, op(1, Stream::P2p, 0), Stream::P2p);
  observer.op_waits(1, Stream::P2p, 0);
  const std::string bytes = status_bytes(*board, 1, 2);
  Result<StatusBoard> other = StatusBoard::create(2);
  ASSERT_TRUE(other);
  apply_status(bytes, other.value(), 0, 1);  // who has rank 0 tells nothing of rank 1
  apply_status(bytes.substr(0, bytes.size() - 1), other.value(), 1, 2);
  EXPECT_EQ(other.value().rank(1).step, -1);
  apply_status(bytes, other.value(), 1, 2);
  EXPECT_EQ(status_bytes(other.value(), 1, 2), bytes);
  EXPECT_EQ(other.value().rank(0).step, -1);
  apply_status("garbage", other.value(), 1, 2);
  EXPECT_EQ(status_bytes(other.value(), 1, 2), bytes);
}

// --- what launchers say ---

Result<std::optional<LaunchEnvironment>> launch(
    const std::map<std::string, std::string>& variables) {
  return read_launch_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchEnvironment, ReadsTorchrun) {
  std::map<std::string, std::string> variables{{"RANK", "3"},
                                               {"WORLD_SIZE", "4"},
                                               {"LOCAL_RANK", "1"},
                                               {"MASTER_ADDR", "10.0.0.1"},
                                               {"MASTER_PORT", "29400"}};
  const auto read = launch(variables);
  ASSERT_TRUE(read && read.value());
  EXPECT_EQ(read.value()->process, 3);
  EXPECT_EQ(read.value()->processes, 4);
  EXPECT_EQ(read.value()->local, 1);
  EXPECT_EQ(read.value()->host, "10.0.0.1");
  EXPECT_EQ(read.value()->port, 29400);
  EXPECT_EQ(read.value()->by, "torchrun");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // the agent listens on 29400 itself
  EXPECT_EQ(launch(variables).value()->port, 29401);
  variables["RANK"] = "4";
  EXPECT_EQ(launch(variables).error().message, "RANK: \"4\" is no number from 0 to 3");
  variables["RANK"] = "0";
  variables.erase("MASTER_ADDR");
  EXPECT_EQ(launch(variables).error().message,
            "MASTER_ADDR: is not set; it names the host of process 0");
  EXPECT_FALSE(launch({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value());
  EXPECT_FALSE(launch({}).value());
}

TEST(LaunchEnvironment, ReadsSlurmAndOpenMpi) {
  const auto slurm = launch({{"SLURM_PROCID", "1"},
                             {"SLURM_NTASKS", "2"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_JOB_NODELIST", "gpu[07-09,12],login"},
                             {"SLURM_JOB_ID", "77"}});
  ASSERT_TRUE(slurm && slurm.value());
  EXPECT_EQ(slurm.value()->host, "gpu07");
  EXPECT_EQ(slurm.value()->port, 29500);
  EXPECT_EQ(slurm.value()->job, "77");
  EXPECT_EQ(slurm.value()->by, "Slurm");
  const auto mpi = launch({{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(mpi && mpi.value());
  EXPECT_EQ(mpi.value()->host, "127.0.0.1");
  EXPECT_TRUE(mpi.value()->one_host);
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("n[3]-ib"), "n3-ib");
  EXPECT_EQ(first_host("single"), "single");
}

TEST(LaunchEnvironment, KnowsWhenAllProcessesAreOnThisHost) {
  const auto host = [](std::map<std::string, std::string> more) {
    more.insert({{"RANK", "1"}, {"WORLD_SIZE", "4"}});
    const auto read = launch(more);
    EXPECT_TRUE(read && read.value());
    return (read.value()->one_host ? "here: " : "hosts: ") + read.value()->host;
  };
  EXPECT_EQ(host({{"MASTER_ADDR", "gpu7"}}), "hosts: gpu7");
  EXPECT_EQ(host({{"MASTER_ADDR", "gpu7"}, {"LOCAL_WORLD_SIZE", "2"}}), "hosts: gpu7");
  EXPECT_EQ(host({{"MASTER_ADDR", "gpu7"}, {"LOCAL_WORLD_SIZE", "4"}}), "here: 127.0.0.1");
  EXPECT_EQ(host({{"MASTER_ADDR", "gpu7"}, {"GROUP_WORLD_SIZE", "1"}}), "here: 127.0.0.1");
  // Nobody else can reach a loopback address; a name that may not resolve is not asked for.
  EXPECT_EQ(host({{"MASTER_ADDR", "localhost"}}), "here: 127.0.0.1");
  EXPECT_EQ(host({{"MASTER_ADDR", "127.0.0.2"}, {"LOCAL_WORLD_SIZE", "1"}}), "here: 127.0.0.2");
  EXPECT_EQ(host({{"MASTER_ADDR", "::1"}}), "here: ::1");
  // Slurm's tasks per node are how many may be there; its number of nodes is one.
  const std::map<std::string, std::string> slurm{{"SLURM_PROCID", "1"},
                                                 {"SLURM_NTASKS", "4"},
                                                 {"SLURM_NTASKS_PER_NODE", "4"},
                                                 {"SLURM_JOB_NODELIST", "gpu[7-8]"}};
  EXPECT_FALSE(launch(slurm).value()->one_host);
  auto one = slurm;
  one["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_TRUE(launch(one).value()->one_host);
}

}  // namespace
}  // namespace rehearse::exec
