#include "web/feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace meshwright::web {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TakeNow(Viewer& viewer) { return viewer.Take(Deadline::After(0)).value_or("closed"); }

TEST(Feed, TellsEverybodyInOrder) {
  Feed feed;
  const auto one = feed.Join(0);
  const auto two = feed.Join(0);
  feed.Publish("totals", "{\"devices\":1}");
  feed.Publish("jobs", "[]");
  const std::string wanted = "event: totals\ndata: {\"devices\":1}\n\nevent: jobs\ndata: []\n\n";
  EXPECT_EQ(TakeNow(*one), wanted);
  EXPECT_EQ(TakeNow(*two), wanted);
  EXPECT_EQ(TakeNow(*one), "");
}

TEST(Feed, StepsAreForWhoHasThatJobOpen) {
  Feed feed;
  const auto seven = feed.Join(7);
  const auto other = feed.Join(8);
  feed.Publish("steps", "{}", 7);
  EXPECT_THAT(TakeNow(*seven), HasSubstr("event: steps"));
  EXPECT_EQ(TakeNow(*other), "");
  EXPECT_EQ(feed.jobs(), (std::set<int64_t>{7, 8}));
}

TEST(Feed, ASlowViewerIsToldToAskAnewAndCostsNoMore) {
  Feed feed({.viewers = 2, .messages = 10, .bytes = 1 << 20});
  const auto slow = feed.Join(0);
  const auto quick = feed.Join(0);
  int told = 0;
  for (int i = 0; i < 10'000; ++i) {
    feed.Publish("jobs", std::to_string(i));
    if (!TakeNow(*quick).empty()) ++told;
  }
  EXPECT_EQ(told, 10'000);  // the slow one held nobody up
  EXPECT_EQ(TakeNow(*slow), "event: resync\ndata: {}\n\n");
  // From then on it is told what comes.
  feed.Publish("jobs", "later");
  EXPECT_EQ(TakeNow(*slow), "event: jobs\ndata: later\n\n");
}

TEST(Feed, BytesAreBoundedToo) {
  Feed feed({.viewers = 1, .messages = 1000, .bytes = 1000});
  const auto viewer = feed.Join(0);
  for (int i = 0; i < 3; ++i) feed.Publish("jobs", std::string(400, 'x'));
  EXPECT_EQ(TakeNow(*viewer), "event: resync\ndata: {}\n\n");
}

TEST(Feed, WhatComesWhileAViewerLagsIsNotToldTwice) {
  Feed feed({.viewers = 1, .messages = 1, .bytes = 1 << 20});
  const auto viewer = feed.Join(0);
  for (int i = 0; i < 5; ++i) feed.Publish("jobs", std::to_string(i));
  EXPECT_THAT(TakeNow(*viewer), Not(HasSubstr("event: jobs")));
}

TEST(Feed, HasRoomForSoManyViewers) {
  Feed feed({.viewers = 2, .messages = 1, .bytes = 1});
  const auto one = feed.Join(0);
  const auto two = feed.Join(0);
  EXPECT_EQ(feed.Join(0), nullptr);
  feed.Leave(one);
  EXPECT_EQ(feed.viewers(), 1u);
  EXPECT_NE(feed.Join(0), nullptr);
}

TEST(Feed, ClosingWakesWhoWaits) {
  Feed feed;
  const auto viewer = feed.Join(0);
  std::thread closer([&feed] { feed.Close(); });
  EXPECT_EQ(viewer->Take(Deadline::After(60'000)), std::nullopt);
  closer.join();
  EXPECT_EQ(feed.Join(0), nullptr);
}

}  // namespace
}  // namespace meshwright::web
