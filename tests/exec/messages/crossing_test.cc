// SPDX-License-Identifier: Apache-2.0
// What a prediction says of the bytes between two processes is what the executor's collectives
// send, for every kind and every split of the members.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>

#include "exec/messages/composed_collectives.h"
#include "schedules/ranks/crossing.h"

namespace rehearse::exec {
namespace {

struct Sent {
  std::map<std::int32_t, std::int64_t> to;  // [B], by process
  std::int32_t rounds = 0;
};

// What process `self` sends in an exchange of `elements` floats among `ranks`, `each` of a process.
Sent sent_by(OpKind kind, std::int64_t elements, std::int32_t ranks, std::int32_t each,
             std::int32_t self) {
  std::vector<std::int32_t> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const std::size_t most = static_cast<std::size_t>(elements * ranks);
  std::vector<std::vector<float>> in(members.size(), std::vector<float>(most)), out = in;
  std::vector<Contribution> contributions;
  for (std::size_t m = 0; m < members.size(); ++m) {
    contributions.push_back({in[m].data(), out[m].data()});
  }
  const Exchange exchange{.kind = kind,
                          .type = ElementType::Float32,
                          .elements = elements,
                          .ranks = members,
                          .contributions = contributions};
  Sent sent;
  const Result<> done = compose(exchange, self, each, [&](std::span<const Message> messages) {
    if (!messages.empty()) ++sent.rounds;
    for (const Message& message : messages) {
      if (message.send) {
        sent.to[message.process] += message.bytes;
      } else {
        std::memset(message.data, 0, static_cast<std::size_t>(message.bytes));
      }
    }
    return Result<>();
  });
  EXPECT_TRUE(done);
  return sent;
}

TEST(Crossing, IsWhatTheCollectivesSend) {
  for (const OpKind kind :
       {OpKind::AllReduce, OpKind::AllGather, OpKind::ReduceScatter, OpKind::AllToAll,
        OpKind::Broadcast, OpKind::Reduce, OpKind::Gather, OpKind::Scatter, OpKind::Send}) {
    for (const std::int32_t processes : {2, 3, 4}) {
      for (const std::int32_t each : {1, 2}) {
        for (const std::int64_t elements : {96, 9600}) {
          const std::int32_t ranks = processes * each;
          const Crossed expected = crossed(kind, elements * 4, ranks, processes, each, each);
          std::int64_t most = 0;  // over every link
          std::int32_t rounds = 0;
          for (std::int32_t self = 0; self < processes; ++self) {
            const Sent sent = sent_by(kind, elements, ranks, each, self);
            rounds = std::max(rounds, sent.rounds);
            for (const auto& [to, bytes] : sent.to) most = std::max(most, bytes);
          }
          EXPECT_EQ(expected.bytes, most)
              << "kind " << static_cast<int>(kind) << ", " << processes << " processes of " << each
              << ", " << elements << " elements";
          EXPECT_EQ(expected.rounds, rounds)
              << "kind " << static_cast<int>(kind) << ", " << processes << " processes of " << each
              << ", " << elements << " elements";
        }
      }
    }
  }
}

}  // namespace
}  // namespace rehearse::exec
