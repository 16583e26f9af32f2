// SPDX-License-Identifier: Apache-2.0
// Collectives over groups of a file's own: read, written, refused in one line, proved, and given
// transfers around them.
#include <gtest/gtest.h>

#include "schedules/formats/csv.h"
#include "schedules/formats/schedule_file.h"
#include "schedules/ir/payload.h"
#include "schedules/ir/text.h"
#include "schedules/proof/validate.h"
#include "schedules/transfers/add_transfers.h"
#include "schedules/transfers/evaluation.h"

namespace rehearse {
namespace {

// Two positions of two, one micro-batch; every rank's ops before and behind its F and B.
std::string file_of(const std::vector<std::string>& before, const std::vector<std::string>& behind,
                    const std::string& groups = R"({"pairs": [[0, 1], [3, 2]]})") {
  std::string orders;
  for (std::size_t r = 0; r < 4; ++r) {
    const std::string number = std::to_string(r);
    orders += (r == 0 ? "[" : ", [") + before[r] + (before[r].empty() ? "" : ", ") + "\"" + number +
              "F0\", \"" + number + "B0\"" + (behind[r].empty() ? "" : ", ") + behind[r] + "]";
  }
  return R"({"groups": )" + groups + R"(, "orders": [)" + orders + "]}";
}

const std::string kSum = R"({"op": "0ALL_REDUCE[pairs]", "bytes": 64})";
const std::string kSend = R"({"op": "1SCATTER[pairs]", "bytes": 32, "root": 1})";

Schedule read(const std::string& text) {
  const Result<ScheduleFile> file = parse_schedule_json(text, "x.json");
  EXPECT_TRUE(file) << (file ? "" : file.error().message);
  return file ? file.value().schedule : Schedule{};
}
std::string refusal(const std::string& text) {
  const Result<ScheduleFile> file = parse_schedule_json(text, "x.json");
  return file ? "" : file.error().message;
}

TEST(OwnGroups, AreReadWithMembersInTheirOrderAndWrittenBack) {
  const Schedule s = read(file_of({kSum, kSum, kSum, kSum}, {kSend, kSend, kSend, kSend}));
  ASSERT_EQ(s.groups.size(), 1U);
  EXPECT_EQ(s.groups[0].name(), "pairs");
  EXPECT_EQ(s.groups[0].size, 2);
  const std::vector<RankClass> rows{{0}, {1}, {3}, {2}};
  EXPECT_EQ(s.groups[0].rows, rows);
  EXPECT_EQ(s.level, Level::Compute);
  const auto program = s.program({2});
  EXPECT_EQ(to_text(s, {static_cast<std::int32_t>(s.first_op({2}))}), "0ALL_REDUCE[pairs]");
  EXPECT_EQ(program.back().kind, OpKind::Scatter);
  EXPECT_EQ(program.back().peer.value, 1);
  EXPECT_EQ(program.back().stream, Stream::Compute);
  EXPECT_EQ(payload_of(s, {s.num_ops() - 1}).bytes(), 32);
  // Ranks 0 and 1 meet, and 2 and 3.
  EXPECT_EQ(s.program({0})[0].match, s.program({1})[0].match);
  EXPECT_EQ(s.program({2})[0].match, s.program({3})[0].match);
  EXPECT_NE(s.program({0})[0].match, s.program({2})[0].match);
  const std::string written = to_schedule_json(s);
  EXPECT_EQ(content_hash(read(written)), content_hash(s));
  EXPECT_EQ(to_schedule_json(read(written)), written);
  EXPECT_EQ(to_csv(s).error().message, "0ALL_REDUCE[pairs]: CSV has no word for it; use JSON");
}

TEST(OwnGroups, BytesRootAndMembersAreInTheHash) {
  const auto hash = [](const std::string& op, const std::string& groups) {
    return content_hash(read(file_of({"", "", "", ""}, {op, op, op, op}, groups)));
  };
  const std::string pairs = R"({"pairs": [[0, 1], [2, 3]]})",
                    turned = R"({"pairs": [[1, 0], [2, 3]]})";
  const std::string scatter = R"({"op": "0SCATTER[pairs]", "bytes": )";
  const std::string one = hash(scatter + "64}", pairs);
  EXPECT_EQ(hash(scatter + R"(64, "root": 0})", pairs), one);
  EXPECT_NE(hash(scatter + R"(64, "root": 1})", pairs), one);
  EXPECT_NE(hash(scatter + "128}", pairs), one);
  EXPECT_NE(hash(scatter + "64}", turned), one);
}

TEST(OwnGroups, WhatDoesNotFitIsRefusedInOneLine) {
  const auto with = [](const std::string& op) {
    return file_of({op, op, "", ""}, {"", "", "", ""});
  };
  const auto groups = [](const std::string& text) {
    return refusal(file_of({"", "", "", ""}, {"", "", "", ""}, text));
  };
  for (const auto& [said, wanted] : std::initializer_list<std::pair<std::string, std::string>>{
           {groups(R"({"pairs": [[0, 1], [2]]})"),
            "must list groups of at least 2 ranks, all of as many"},
           {groups(R"({"pairs": [[0, 1, 2], [3, 0]]})"), "must list groups of at least 2 ranks"},
           {groups(R"({"pairs": [[0, 1], [1, 2]]})"), "lists rank 1 twice"},
           {groups(R"({"pairs": [[0, 4]]})"), "must be a rank from 0 to 3"},
           {groups(R"({"tp": [[0, 1]]})"), "is a group of the mesh"},
           {groups(R"({"a b": [[0, 1]]})"), "a name has letters"},
           {groups(R"([[0, 1]])"), "must be an object"},
           {refusal(with(R"("0SCATTER[pairs]")")), "0SCATTER[pairs] has no `bytes`"},
           {refusal(with(R"({"op": "0SCATTER[all]", "bytes": 64})")), "`groups` has no such group"},
           {refusal(with(R"({"op": "0SCATTER[pairs]", "bytes": 12})")), "must be a multiple of 8"},
           {refusal(with(R"({"op": "0BROADCAST[pairs]", "bytes": 6})")), "must be a multiple of 4"},
           {refusal(with(R"({"op": "0SCATTER[pairs]", "bytes": 64, "root": 2})")), "from 0 to 1"},
           {refusal(with(R"({"op": "0ALL_REDUCE[pairs]", "bytes": 64, "root": 1})")),
            "has no root"},
           {refusal(with(R"({"op": "0F0", "bytes": 64})")), "only collectives of own groups"},
           {refusal(with(R"({"op": "0SCATTER[pairs]", "bytes": -4})")), "must be a whole number"},
           {refusal(with(R"({"op": "0SCATTER[]", "bytes": 4})")), "expected the name of a group"},
           {parse_csv("0F0,0SCATTER[pairs]\n", "x.csv").error().message, "has no such group"},
       }) {
    EXPECT_NE(said.find(wanted), std::string::npos) << said << "\nwanted: " << wanted;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  const std::string more = R"({"op": "0ALL_REDUCE[pairs]", "bytes": 128})";
  EXPECT_NE(refusal(file_of({kSum, more, "", ""}, {"", "", "", ""}))
                .find("of 128 bytes: rank 0 lists it with 64"),
            std::string::npos);
  const std::string other = R"({"op": "1SCATTER[pairs]", "bytes": 32, "root": 0})";
  EXPECT_NE(refusal(file_of({kSend, other, "", ""}, {"", "", "", ""}))
                .find("with root 0: rank 0 lists it with root 1"),
            std::string::npos);
}

std::vector<std::string> rules_of(const Validation& validation) {
  std::vector<std::string> rules;
  for (const Violation& one : validation.violations) rules.emplace_back(one.rule);
  return rules;
}

TEST(OwnGroups, AreProvedMembersOrderAndDeadlock) {
  EXPECT_TRUE(
      validate(read(file_of({kSum, kSum, kSum, kSum}, {kSend, kSend, kSend, kSend}))).sound());
  // Who is not there.
  const Validation missing = validate(read(file_of({kSum, "", kSum, kSum}, {"", "", "", ""})));
  ASSERT_EQ(rules_of(missing), std::vector<std::string>{"V5"});
  EXPECT_NE(missing.violations[0].message.find("listed by 1 of its 2 ranks"), std::string::npos);
  // Who is no member.
  const Validation alien =
      validate(read(file_of({kSum, kSum, kSum, ""}, {"", "", "", ""}, R"({"pairs": [[0, 1]]})")));
  EXPECT_NE(alien.violations[0].message.find("which its row is not a member of"),
            std::string::npos);
  // Another order: a circle of two.
  const std::string both = kSum + ", " + kSend, turned = kSend + ", " + kSum;
  const Validation crossed = validate(read(file_of({both, turned, "", ""}, {"", "", "", ""})));
  EXPECT_EQ(rules_of(crossed), (std::vector<std::string>{"V5", "V6"}));
  // In one order, but before an F on one rank and behind its B on the other: through the pipeline.
  const Validation through = validate(read(file_of({"", kSum, "", ""}, {kSum, "", "", ""})));
  EXPECT_EQ(rules_of(through), std::vector<std::string>{"V6"});
}

// Whatever the policy, transfers go round the exchanges without a circle, and the order stays.
TEST(OwnGroups, TransfersAreAddedAroundThem) {
  const Schedule order = read(file_of({kSum, kSum, kSum, kSum}, {kSend, kSend, kSend, kSend}));
  for (const TransferPolicyInfo& policy : kTransferPolicies) {
    const Schedule full = add_transfers(order, unit_finish(order), policy.policy);
    EXPECT_EQ(full.num_ops(), order.num_ops() + 12) << policy.name;
    for (const StreamModelInfo& streams : kStreamModels) {
      const Validation proof = validate(full, {.streams = streams.model, .compute_order = &order});
      EXPECT_TRUE(proof.sound()) << policy.name << ' ' << streams.name << ": "
                                 << proof.violations.front().message;
    }
  }
  // They take no time by themselves, but who comes early waits: with one micro-batch nobody does.
  const Result<Evaluation> timed = evaluate(order, {}, TransferPolicy::TimeSorted);
  ASSERT_TRUE(timed) << timed.error().message;
  EXPECT_EQ(timed.value().metrics.makespan.value, 4 + 4 * 2);
}

// A row that stands at an exchange waits for the last of its members.
TEST(OwnGroups, EarlyMembersWaitForLateOnes) {
  const std::string all = R"({"op": "0ALL_REDUCE[all]", "bytes": 64})";
  std::vector<std::string> behind(4, all);
  const Schedule order = read(file_of({"", "", "", ""}, behind, R"({"all": [[0, 1, 2, 3]]})"));
  const ComputeTiming timing = time_compute(order, {}).value();
  for (std::int32_t r = 0; r < 4; ++r) {
    const std::size_t last = order.first_op({r + 1}) - 1;
    EXPECT_EQ(timing.start[last].value, 12);  // when rank 0's backward has ended
    EXPECT_EQ(timing.end[last].value, 12);
  }
}

}  // namespace
}  // namespace rehearse
