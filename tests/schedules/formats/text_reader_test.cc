// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/text_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "schedules/ir/schedule.h"
#include "schedules/ir/text.h"

namespace rehearse {
namespace {

TEST(OpText, EveryFormReadsBackAsItIsWritten) {
  for (const char* text : {"2F0", "0B3", "11I2", "0W127", "3R1", "0F1.2", "3F1[0]", "3F1[0:2]",
                           "0F1.2[1:4]", "0SEND_F1", "1RECV_F1", "1SEND_B1.3", "0RECV_B1",
                           "0UNSHARD", "0RESHARD", "5REDUCE_GRAD", "2OPTIMIZER_STEP"}) {
    const Result<ParsedOp> parsed = parse_op(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error().message;
    EXPECT_EQ(to_text(parsed.value().op), text);
  }
}

TEST(OpText, APairHoldsItsTwoOps) {
  const ParsedOp pair = parse_op("(0F3;7I1)OVERLAP_F_B").value();
  EXPECT_EQ(pair.op.kind, OpKind::Overlap);
  EXPECT_EQ(to_text(pair.children[0]), "0F3");
  EXPECT_EQ(to_text(pair.children[1]), "7I1");
}

TEST(OpText, AGroupHoldsItsTransfersWithTheirPeers) {
  const ParsedCell cell = parse_cell("[0SEND_F3>r1 3RECV_F2<r1]").value();
  ASSERT_EQ(cell.ops.size(), 2U);
  EXPECT_TRUE(cell.group);
  EXPECT_EQ(cell.ops[0].op.peer, Position{1});
  EXPECT_EQ(cell.ops[1].op.kind, OpKind::Recv);
}

// torch's own reader matches a prefix: "2F0xyz" is 2F0 there.
TEST(OpText, WhatIsNotAnOpToTheLastCharacterIsRefusedWithItsColumn) {
  for (const auto& [text, error] : std::initializer_list<std::pair<const char*, const char*>>{
           {"2F0xyz", "column 4: unexpected \"xyz\""},
           {"2F0 ", "column 4: unexpected \" \""},
           {"", "column 1: expected a stage number, found the end"},
           {"F0", "column 1: expected a stage number, found \"F0\""},
           {"-1F0", "column 1: expected a stage number, found \"-1F0\""},
           {"2F", "column 3: expected a micro-batch number, found the end"},
           {"2FORWARD0", "column 3: expected a micro-batch number, found \"ORWARD0\""},
           {"2X0",
            "column 2: expected F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, "
            "RESHARD, REDUCE_GRAD, OPTIMIZER_STEP or a collective, found \"X0\""},
           {"2SEND0",
            "column 2: expected F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, "
            "RESHARD, REDUCE_GRAD, OPTIMIZER_STEP or a collective, found \"SEND0\""},
           {"0UNSHARD3", "column 9: unexpected \"3\""},
           {"99999999999F0", "column 1: a stage number is larger than 99999999"},
           {"0F999999999999999999999", "column 3: a micro-batch number is larger than 99999999"},
           {"0F0.200", "column 5: a slice number is larger than 127"},
           {"0F0[2:1]", "column 8: the part ends before it begins"},
           {"0F0[1", "column 6: expected \"]\", found the end"},
           {"0SEND_F1<r0", "column 9: expected \">r\", found \"<r0\""},
           {"(0B3;7F1)OVERLAP_F_B", "column 5: the first op of an overlapped pair is a forward"},
           {"(0F3;7W1)OVERLAP_F_B",
            "column 9: the second op of an overlapped pair is a backward (B or I)"},
           {"(0F3;7B1)", "column 10: expected \"OVERLAP_F_B\", found the end"},
           {"[0SEND_F0]", "column 1: expected a stage number, found \"[0SEND_F0]\""},
       }) {
    const Result<ParsedOp> parsed = parse_op(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, error) << text;
  }
  EXPECT_EQ(parse_cell("[0SEND_F0 0F1]").error().message,
            "column 14: a group holds SEND and RECV only");
  EXPECT_EQ(parse_cell("[0SEND_F0").error().message, "column 10: expected \"]\", found the end");
}

}  // namespace
}  // namespace rehearse
