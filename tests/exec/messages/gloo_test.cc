// SPDX-License-Identifier: Apache-2.0
// Collectives over Gloo give the bits of those in one process, for every split of the members over
// processes; transfers find their tags; a partner that is late or gone is an error in time.
//
// Processes are communicators in threads of this one: neither Gloo nor the kernel, which reads a
// neighbor's memory, knows the difference. All of it by TCP, by memory, and by both: the last
// process is nobody's neighbor.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "exec/cpu/collectives.h"
#include "exec/messages/composed_collectives.h"
#include "exec/messages/gloo_communicator.h"

namespace rehearse::exec {
namespace {

template <class T>
T taken(Result<T> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return std::move(result).value();
}

enum class Way { Tcp, Memory, Both };

// A mesh of `processes` communicators over `ranks` ranks.
struct Mesh {
  std::unique_ptr<StoreServer> server;
  std::vector<std::unique_ptr<StoreClient>> clients;
  std::vector<std::unique_ptr<ProcessCommunicator>> communicators;
  std::vector<std::string> errors;  // of who could not connect

  // `liar`: the process that does not know the secret.
  Mesh(Way way, std::int32_t processes, std::int32_t ranks, double timeout_s = 60,
       std::int32_t liar = -1) {
    const Identity all{.processes = processes, .ranks = ranks, .secret = "of this test"};
    server = taken(StoreServer::start(all, 0));
    clients.resize(static_cast<std::size_t>(processes));
    communicators.resize(clients.size());
    errors.resize(clients.size());
    std::vector<std::thread> threads;
    for (std::int32_t p = 0; p < processes; ++p) {
      threads.emplace_back([&, p] {
        Identity who = all;
        who.process = p;
        auto& client = clients[static_cast<std::size_t>(p)];
        client = taken(StoreClient::join("127.0.0.1", server->port(), who, 20, 60, {}));
        auto connected = connect_gloo(
            {.process = p,
             .processes = processes,
             .ranks = ranks,
             .address = client->address(),
             .secret = liar == p ? "another one" : all.secret,
             .timeout_s = timeout_s,
             .shared_memory = way == Way::Memory || (way == Way::Both && p + 1 < processes)},
            *client);
        if (!connected) {
          errors[static_cast<std::size_t>(p)] = connected.error().message;
        } else {
          communicators[static_cast<std::size_t>(p)] = std::move(connected).value();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(liar >= 0 || errors == std::vector<std::string>(errors.size())) << errors[0];
  }
};

// The ports at which this process listens now, with their addresses as /proc has them.
std::map<std::string, std::string> listening() {
  std::set<std::string> mine;  // sockets
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    mine.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::map<std::string, std::string> found;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      if (word.size() < 10 || word[3] != "0A" || !mine.contains("socket:[" + word[9] + "]"))
        continue;
      const std::size_t colon = word[1].find(':');
      found[word[1].substr(colon + 1)] = word[1].substr(0, colon);
    }
  }
  return found;
}

// Counts exchanges under way and keeps what went wrong.
struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0;
  std::vector<std::string> errors;
  Communicator::Done done() {
    const std::lock_guard lock(mutex);
    ++open;
    return [this](const Result<>& result) {
      const std::lock_guard guard(mutex);
      if (!result) errors.push_back(result.error().message);
      --open;
      changed.notify_all();
    };
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open == 0; });
  }
};

struct Arrays {  // of every member: what it brings and what it gets
  std::vector<std::vector<std::byte>> in, out;
  std::vector<Contribution> contributions;
};

Arrays arrays_for(const Exchange& x, bool in_place, std::mt19937& random) {
  const auto width = static_cast<std::size_t>(bytes_of(x.type));
  const auto members = x.ranks.size();
  const std::size_t whole = static_cast<std::size_t>(x.elements) * width, part = whole / members;
  const bool parted = x.kind == OpKind::ReduceScatter || x.kind == OpKind::AllGather ||
                      x.kind == OpKind::Gather || x.kind == OpKind::Scatter;
  const bool gathers = x.kind == OpKind::AllGather || x.kind == OpKind::Gather;
  std::normal_distribution<double> normal;
  Arrays made;
  for (std::size_t m = 0; m < members; ++m) {
    std::vector<std::byte> in(parted && gathers && !in_place ? part : whole);
    for (std::size_t i = 0; i < in.size(); i += width) {
      const double value = normal(random);
      const auto single = static_cast<float>(value);
      std::memcpy(in.data() + i, width == 8 ? static_cast<const void*>(&value) : &single, width);
    }
    made.out.push_back(in_place ? in : std::vector<std::byte>(parted && !gathers ? part : whole));
    made.in.push_back(std::move(in));
  }
  for (std::size_t m = 0; m < members; ++m) {
    made.contributions.push_back(
        {in_place ? made.out[m].data() : made.in[m].data(), made.out[m].data()});
  }
  return made;
}

void expect_same_bits(Mesh& mesh, Exchange x, std::span<const std::int32_t> ranks,
                      std::int32_t each, bool in_place, std::mt19937& random) {
  x.ranks = ranks;
  const std::mt19937 same = random;
  std::mt19937 first = same;
  Arrays expected = arrays_for(x, in_place, first), got = arrays_for(x, in_place, random);
  x.contributions = expected.contributions;
  perform(x);
  Outcome outcome;
  std::vector<std::vector<Contribution>> brought;  // by process: only its members'
  std::vector<Exchange> exchanges;
  for (std::size_t p = 0; p < mesh.communicators.size(); ++p) {
    std::vector<Contribution>& mine = brought.emplace_back(ranks.size());
    for (std::size_t m = 0; m < ranks.size(); ++m) {
      if (static_cast<std::size_t>(ranks[m] / each) == p) mine[m] = got.contributions[m];
    }
  }
  for (std::size_t p = 0; p < mesh.communicators.size(); ++p) {
    bool member = false;
    for (const std::int32_t rank : ranks)
      member = member || static_cast<std::size_t>(rank / each) == p;
    if (!member) continue;
    x.contributions = brought[p];
    mesh.communicators[p]->collective(x, outcome.done());
  }
  outcome.wait();
  ASSERT_EQ(outcome.errors, std::vector<std::string>{});
  for (std::size_t m = 0; m < ranks.size(); ++m) {
    const bool root_alone = x.kind == OpKind::Reduce || x.kind == OpKind::Gather;
    if (root_alone && static_cast<std::int32_t>(m) != x.root) continue;
    // In place, the parts of others are anybody's after a reduce-scatter.
    std::size_t begin = 0, size = expected.out[m].size();
    if (in_place && x.kind == OpKind::ReduceScatter) {
      size /= ranks.size();
      begin = m * size;
    }
    ASSERT_EQ(std::memcmp(expected.out[m].data() + begin, got.out[m].data() + begin, size), 0)
        << traits(x.kind).name << " of " << x.elements << ", member " << m << " of " << ranks.size()
        << (in_place ? ", in place" : "");
  }
}

class Gloo : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!has_gloo()) GTEST_SKIP() << "SKIPPED: this build has no Gloo";
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Gloo, testing::Values(Way::Tcp, Way::Memory, Way::Both),
                         [](const auto& way) {
                           return way.param == Way::Tcp      ? "Tcp"
                                  : way.param == Way::Memory ? "Memory"
                                                             : "Both";
                         });

TEST_P(Gloo, NeighborsAreReachedThroughMemory) {
  const Mesh mesh(GetParam(), 4, 4);
  std::vector<std::int32_t> reached;
  for (const auto& communicator : mesh.communicators)
    reached.push_back(communicator->reached_through_memory());
  const std::vector<std::int32_t> nobody(4, 0);
  if (GetParam() != Way::Tcp && reached == nobody) {
    GTEST_SKIP() << "SKIPPED: processes may not read each other's memory here (ptrace)";
  }
  EXPECT_EQ(reached, GetParam() == Way::Tcp      ? nobody
                     : GetParam() == Way::Memory ? std::vector<std::int32_t>(4, 3)
                                                 : std::vector<std::int32_t>({2, 2, 2, 0}));
}

TEST_P(Gloo, CollectivesHaveTheBitsOfOneProcess) {
  std::mt19937 random(11);
  const OpKind kinds[] = {OpKind::AllReduce, OpKind::ReduceScatter, OpKind::AllGather,
                          OpKind::Broadcast, OpKind::Reduce,        OpKind::Gather,
                          OpKind::Scatter,   OpKind::AllToAll,      OpKind::Send};
  struct Split {
    std::int32_t processes, each;
    std::vector<std::int32_t> ranks;
  };
  const Split splits[] = {{2, 1, {0, 1}},          {2, 2, {0, 1, 2, 3}}, {2, 2, {1, 3}},
                          {2, 4, {0, 2, 5, 6, 7}}, {4, 1, {0, 1, 2, 3}}, {4, 1, {1, 3}},
                          {4, 2, {0, 2, 4, 6}},    {3, 2, {0, 1, 4}}};
  for (const Split& split : splits) {
    Mesh mesh(GetParam(), split.processes, split.processes * split.each);
    std::int64_t sequence = 0;
    for (const OpKind kind : kinds) {
      for (const std::int64_t part : {1, 37, 5000}) {
        const auto members = static_cast<std::int64_t>(split.ranks.size());
        Exchange x{.kind = kind, .elements = part * members, .instance = 3};
        x.type = random() % 2 == 0 ? ElementType::Float32 : ElementType::Float64;
        x.maximum = kind == OpKind::AllReduce && random() % 3 == 0;
        x.root = static_cast<std::int32_t>(random() % split.ranks.size());
        if (kind == OpKind::AllReduce) x.elements += 1;  // needs not divide
        for (const bool in_place : {false, true}) {
          const bool possible = kind != OpKind::AllToAll && kind != OpKind::Gather &&
                                kind != OpKind::Scatter && kind != OpKind::Send;
          if (in_place && !possible) continue;
          x.sequence = sequence++;
          expect_same_bits(mesh, x, split.ranks, split.each, in_place, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Eight processes. Straight through the root, it would send or get 7 arrays.
TEST(Composition, MovesAtMostTwoArraysThroughAnyProcess) {
  std::vector<std::int32_t> ranks(8);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<float> array(20000);
  const auto bytes = static_cast<std::int64_t>(4 * array.size());
  const std::vector<Contribution> contributions(8, {array.data(), array.data()});
  for (const OpKind kind : {OpKind::AllReduce, OpKind::Broadcast, OpKind::Reduce}) {
    std::int64_t sent = 0, got = 0;  // by all
    for (std::int32_t process = 0; process < 8; ++process) {
      const Exchange x{.kind = kind,
                       .type = ElementType::Float32,
                       .elements = 20000,
                       .root = 5,
                       .ranks = ranks,
                       .contributions = contributions};
      std::int64_t out = 0, in = 0;
      const auto count = [&](std::span<const Message> messages) -> Result<> {
        for (const Message& message : messages) (message.send ? out : in) += message.bytes;
        return {};
      };
      ASSERT_TRUE(compose(x, process, 1, count));
      EXPECT_LE(std::max(out, in), 2 * bytes) << traits(kind).name << ", process " << process;
      sent += out;
      got += in;
    }
    EXPECT_EQ(sent, got) << traits(kind).name;
    EXPECT_GE(sent, 7 * bytes) << traits(kind).name;  // everybody takes part
  }
}

TEST_P(Gloo, TransfersFindTheirTagInAnyOrder) {
  Mesh mesh(GetParam(), 2, 4);
  constexpr std::uint64_t kTags = 40;
  std::vector<std::vector<std::byte>> sent, got;
  for (std::uint64_t tag = 0; tag < kTags; ++tag) {
    sent.emplace_back(1000 * tag + 8, static_cast<std::byte>(tag));
    got.emplace_back(sent.back().size());
  }
  for (int step = 0; step < 3; ++step) {  // the same tags again in the next step
    Outcome outcome;
    for (std::uint64_t tag = 0; tag < kTags; ++tag) {
      mesh.communicators[0]->send({.rank = 1}, 2, tag, sent[tag], outcome.done());
    }
    for (std::uint64_t tag = kTags; tag-- > 0;) {
      mesh.communicators[1]->receive({.rank = 2}, 1, tag, got[tag], outcome.done());
    }
    outcome.wait();
    EXPECT_EQ(outcome.errors, std::vector<std::string>{});
    EXPECT_EQ(sent, got);
    for (auto& bytes : got) std::ranges::fill(bytes, std::byte{255});
  }
}

// Gloo takes whoever comes first: a stranger who is quick enough is found out before any data goes
// to it.
// Whoever sees the other secret first leaves, and closes its connections: the others then name the
// stranger too, or that they could not connect. Nobody gets a partner.
TEST(GlooStrangers, WhoDoesNotKnowTheSecretIsNobodysPartner) {
  const Mesh mesh(Way::Tcp, 3, 3, 10, 2);
  int named = 0;
  for (std::size_t p = 0; p < 3; ++p) {
    EXPECT_EQ(mesh.communicators[p], nullptr);
    const bool names = mesh.errors[p].starts_with("gloo: who connected as process ") &&
                       mesh.errors[p].ends_with(" does not know the secret of the run");
    EXPECT_TRUE(names || mesh.errors[p] == "gloo: the processes cannot connect at 127.0.0.1")
        << mesh.errors[p];
    if (names && p < 2) {
      EXPECT_TRUE(mesh.errors[p].starts_with("gloo: who connected as process 2 "))
          << mesh.errors[p];
    }
    named += names ? 1 : 0;
  }
  EXPECT_GE(named, 1);
}

// It listens while the processes meet: for milliseconds, so it is looked at while many meet.
TEST(GlooStrangers, OnlyItsOwnAddressIsListenedAt) {
  std::map<std::string, std::string> seen;
  std::size_t stores = 0;
  for (; stores < 200 && seen.size() < stores + 8; ++stores) {
    std::atomic<bool> met = false;
    std::thread meets([&] {
      const Mesh mesh(Way::Tcp, 6, 6);
      met = true;
    });
    while (!met) seen.merge(listening());
    meets.join();
  }
  EXPECT_GE(seen.size(), stores + 8) << "no port of Gloo's was seen: the test proves nothing";
  for (const auto& [port, address] : seen) EXPECT_EQ(address, "0100007F") << "port " << port;
}

TEST_P(Gloo, ProcessesAgreeOnTheLargest) {
  Mesh mesh(GetParam(), 3, 3);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int p = 0; p < 3; ++p) {
      threads.emplace_back([&, p] {
        EXPECT_EQ(
            taken(mesh.communicators[static_cast<std::size_t>(p)]->largest(p == round ? 7 : -p)),
            7);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Gloo, APartnerThatDoesNotComeIsATimeout) {
  Mesh mesh(GetParam(), 2, 2, 0.3);
  Outcome outcome;
  std::vector<std::byte> data(100000);
  mesh.communicators[0]->receive({.rank = 0}, 1, 5, data, outcome.done());
  outcome.wait();
  ASSERT_EQ(outcome.errors.size(), 1U);
  EXPECT_EQ(outcome.errors[0], "no answer from process 1 for 0 s");
  EXPECT_EQ(mesh.communicators[0]->trouble(), GlooTrouble::Timeout);
  mesh.communicators[0]->send({.rank = 0}, 1, 6, data, outcome.done());  // dead from then on
  outcome.wait();
  EXPECT_EQ(outcome.errors.size(), 2U);
}

TEST_P(Gloo, APartnerThatIsGoneIsAnErrorAtOnce) {
  Mesh mesh(GetParam(), 2, 2);
  Outcome outcome;
  std::vector<std::byte> data(100000);
  mesh.communicators[0]->receive({.rank = 0}, 1, 5, data, outcome.done());
  mesh.communicators[1].reset();
  outcome.wait();
  ASSERT_EQ(outcome.errors.size(), 1U);
  EXPECT_EQ(outcome.errors[0], "the connection to process 1 is lost");
  EXPECT_EQ(mesh.communicators[0]->trouble(), GlooTrouble::PeerLost);
}

TEST_P(Gloo, EndsWhatIsUnderWayWhenTold) {
  Mesh mesh(GetParam(), 2, 2);
  Outcome outcome;
  std::vector<std::byte> data(100000);
  mesh.communicators[0]->receive({.rank = 0}, 1, 5, data, outcome.done());
  mesh.communicators[0]->send({.rank = 0}, 1, 6, data, outcome.done());
  mesh.communicators[0]->end("the run was ended");
  outcome.wait();
  EXPECT_EQ(outcome.errors, (std::vector<std::string>(2, "the run was ended")));
}

}  // namespace
}  // namespace rehearse::exec
