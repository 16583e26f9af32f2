// SPDX-License-Identifier: Apache-2.0
// The status board tells what a rank that was killed was doing; its ring keeps the last 256 ops.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "exec/status/flight_recorder.h"
#include "exec/step/observer.h"

namespace rehearse::exec {
namespace {

StatusBoard board_of(std::int32_t ranks) {
  Result<StatusBoard> made = StatusBoard::create(ranks);
  EXPECT_TRUE(made);
  return std::move(made).value();
}

TEST(StatusBoard, KnowsTheOpOfAKilledProcess) {
  const StatusBoard board = board_of(2);
  const pid_t child = fork();
  if (child == 0) {
    const Result<StatusBoard> mine = StatusBoard::attach(dup(board.descriptor()), 2);
    if (!mine) _exit(1);
    Observer observer(mine.value());
    observer.step_began(1, 4);
    observer.op_began(1, 4, {7}, Stream::Compute);
    observer.op_ended(1, Stream::Compute);
    observer.op_began(1, 4, {8}, Stream::P2p);
    observer.op_waits(1, Stream::P2p, 0);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RankStatus& rank = board.rank(1);
  EXPECT_EQ(rank.step, 4);
  EXPECT_EQ(rank.last_ended, 7);
  EXPECT_EQ(rank.streams[static_cast<std::size_t>(Stream::P2p)].op, 8);
  EXPECT_EQ(rank.streams[static_cast<std::size_t>(Stream::P2p)].waits_for, 0);
  EXPECT_EQ(rank.streams[static_cast<std::size_t>(Stream::Compute)].op, -1);
  EXPECT_EQ(board.rank(0).step, -1);
}

TEST(StatusBoard, OfAnotherNumberOfRanksIsRefused) {
  const StatusBoard board = board_of(2);
  EXPECT_FALSE(StatusBoard::attach(dup(board.descriptor()), 3));
}

TEST(FlightRecorder, KeepsTheLastEventsAndDumpsThem) {
  const StatusBoard board = board_of(1);
  Observer observer(board);
  observer.step_began(0, 0);
  observer.op_began(0, 0, {5}, Stream::Dp);  // stays under way; its entry is overwritten
  for (std::int32_t i = 0; i < 300; ++i) {
    observer.op_began(0, 0, {i}, Stream::Compute);
    if (i < 299) observer.op_ended(0, Stream::Compute);
  }
  observer.op_ended(0, Stream::Dp);  // must not touch the entry of another op
  const std::string folder = testing::TempDir() + "rehearse-flight-test";
  ASSERT_TRUE(dump_flight(board, 0, 1, Schedule{}, folder));
  std::ifstream in(folder + "/rank-0.json");
  const nlohmann::json json = nlohmann::json::parse(in);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(json["schema"], "rehearse.flight/1");
  ASSERT_EQ(json["events"].size(), kFlightEvents);
  EXPECT_EQ(json["events"].front()["id"], 300 - 256);
  EXPECT_EQ(json["events"].back()["id"], 299);
  EXPECT_TRUE(json["events"].back()["ended_ns"].is_null());
  for (std::size_t i = 0; i + 1 < json["events"].size(); ++i) {
    EXPECT_GE(json["events"][i]["ended_ns"], json["events"][i]["began_ns"]);
  }
}

TEST(FlightRecorder, SaysWhereItCannotWrite) {
  const StatusBoard board = board_of(1);
  const Result<> written = dump_flight(board, 0, 1, Schedule{}, "/proc/no/such");
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("/proc/no/such"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::exec
