#include "web/access.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fake_clock.h"

namespace meshwright::web {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HttpRequest RequestOf(std::map<std::string, std::string> headers) {
  HttpRequest request;
  request.method = "POST";
  request.path = "/api/v1/jobs/1/stop";
  request.headers = std::move(headers);
  return request;
}

std::string HeaderOf(const HttpReply& reply, const std::string& name) {
  for (const auto& [known, value] : reply.headers) {
    if (known == name) return value;
  }
  return "";
}

// What a browser sends back of a Set-Cookie.
std::string CookieIn(const HttpReply& reply) {
  const std::string cookie = HeaderOf(reply, "Set-Cookie");
  return cookie.substr(0, cookie.find(';'));
}

class AccessTest : public testing::Test {
 protected:
  HttpReply Login(const std::string& token, const std::string& from = "ipv4:10.0.0.7:1001") {
    HttpRequest request = RequestOf({{"host", "mesh.example"}, {"origin", "https://mesh.example"}});
    request.body = "token=" + token;
    request.from = from;
    return access_.Login(request).reply;
  }
  HttpRequest WithCookie(const std::string& cookie, const std::string& origin) {
    HttpRequest request = RequestOf({{"host", "mesh.example"}, {"cookie", "a=b; " + cookie}});
    if (!origin.empty()) request.headers["origin"] = origin;
    return request;
  }

  FakeClock clock_;
  Access open_{{}, clock_};
  Access access_{{"look", "act+", true}, clock_};
};

TEST_F(AccessTest, OnLoopbackAnyoneMayLookAndAct) {
  for (const char* host : {"127.0.0.1:7780", "localhost:7780", "127.0.0.2", "[::1]:1", "[::1]"}) {
    const HttpRequest request =
        RequestOf({{"host", host}, {"origin", std::string("http://") + host}});
    EXPECT_TRUE(open_.CheckLook(request).ok()) << host;
    EXPECT_TRUE(open_.CheckAct(request).ok()) << host;
  }
  EXPECT_TRUE(open_.CheckAct(RequestOf({{"host", "localhost:7780"}})).ok());  // curl
}

TEST_F(AccessTest, ANameOfAStrangerIsNotThisMachine) {
  for (const char* host : {"evil.example:7780", "localhost.evil.example", "127.0.0.1.evil.example",
                           "10.0.0.1:7780", "127.evil"}) {
    EXPECT_EQ(open_.CheckLook(RequestOf({{"host", host}})).code(), StatusCode::kPermissionDenied)
        << host;
  }
}

TEST_F(AccessTest, AnotherPageMayNotAct) {
  EXPECT_EQ(
      open_.CheckAct(RequestOf({{"host", "localhost:7780"}, {"origin", "http://evil.example"}}))
          .code(),
      StatusCode::kPermissionDenied);
  // Another port is another page.
  EXPECT_EQ(
      open_.CheckAct(RequestOf({{"host", "localhost:7780"}, {"origin", "http://localhost:1"}}))
          .code(),
      StatusCode::kPermissionDenied);
  EXPECT_EQ(open_.CheckAct(RequestOf({{"host", "localhost:7780"}, {"origin", "null"}})).code(),
            StatusCode::kPermissionDenied);
}

TEST_F(AccessTest, TokensSayWhoMayWhat) {
  const auto bearer = [](const std::string& token) {
    return RequestOf({{"host", "mesh.example"}, {"authorization", "Bearer " + token}});
  };
  EXPECT_EQ(access_.RoleOf(bearer("look")), Role::kViewer);
  EXPECT_EQ(access_.RoleOf(bearer("act+")), Role::kOperator);
  EXPECT_EQ(access_.RoleOf(bearer("loo")), Role::kNobody);
  EXPECT_EQ(access_.RoleOf(bearer("")), Role::kNobody);
  EXPECT_TRUE(access_.CheckLook(bearer("look")).ok());
  EXPECT_EQ(access_.CheckAct(bearer("look")).code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(access_.CheckAct(bearer("act+")).ok());
  EXPECT_EQ(access_.CheckLook(RequestOf({{"host", "127.0.0.1"}})).code(),
            StatusCode::kUnauthenticated);
}

TEST_F(AccessTest, ACookieHasTheRoleOfItsTokenForHalfADay) {
  const HttpReply reply = Login("act%2b");
  EXPECT_EQ(reply.code, 303);
  EXPECT_EQ(HeaderOf(reply, "Location"), "/");
  for (const char* part : {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"}) {
    EXPECT_THAT(HeaderOf(reply, "Set-Cookie"), HasSubstr(part));
  }
  EXPECT_THAT(HeaderOf(reply, "Set-Cookie"), Not(HasSubstr("act+")));
  const std::string cookie = CookieIn(reply);
  EXPECT_TRUE(access_.CheckAct(WithCookie(cookie, "https://mesh.example")).ok());
  // Browsers always say where an order comes from.
  EXPECT_FALSE(access_.CheckAct(WithCookie(cookie, "")).ok());
  EXPECT_FALSE(access_.CheckAct(WithCookie(cookie, "https://evil.example")).ok());
  clock_.AdvanceMs(Access::kCookieMs - 1000);
  EXPECT_TRUE(access_.CheckLook(WithCookie(cookie, "")).ok());
  clock_.AdvanceMs(1000);
  EXPECT_FALSE(access_.CheckLook(WithCookie(cookie, "")).ok());
}

TEST_F(AccessTest, ACookieThatWasChangedIsNone) {
  const std::string viewer = CookieIn(Login("look"));
  EXPECT_EQ(access_.RoleOf(WithCookie(viewer, "")), Role::kViewer);
  EXPECT_FALSE(access_.CheckAct(WithCookie(viewer, "https://mesh.example")).ok());
  std::string promoted = viewer;
  promoted.replace(promoted.find("viewer"), 6, "operator");
  EXPECT_EQ(access_.RoleOf(WithCookie(promoted, "")), Role::kNobody);
  std::string later = viewer;
  later[later.find('.') + 1] = '9';
  EXPECT_EQ(access_.RoleOf(WithCookie(later, "")), Role::kNobody);
  // A new token ends what the old one gave.
  const Access other({"other", "act+", true}, clock_);
  EXPECT_EQ(other.RoleOf(WithCookie(viewer, "")), Role::kNobody);
}

TEST_F(AccessTest, WrongTokensRunOut) {
  for (int i = 0; i < Access::kMostTries; ++i) {
    EXPECT_EQ(HeaderOf(Login("guess"), "Location"), "/?wrong=1");
  }
  EXPECT_EQ(Login("look").code, 429);
  EXPECT_EQ(Login("look", "ipv4:10.0.0.7:1002").code, 429) << "another port is nobody else";
  EXPECT_EQ(Login("look", "ipv4:10.0.0.8:1001").code, 303) << "others can log in as ever";
  clock_.AdvanceMs(60'000);
  EXPECT_EQ(Login("look").code, 303);
  EXPECT_EQ(access_.RoleOf(WithCookie(CookieIn(Login("look")), "")), Role::kViewer);
}

// A header is a way to guess like the form.
TEST_F(AccessTest, WrongTokensInHeadersRunOut) {
  const auto code = [this](const std::string& token, const std::string& from) {
    HttpRequest request =
        RequestOf({{"host", "mesh.example"}, {"authorization", "Bearer " + token}});
    request.from = from;
    return access_.CheckLook(request).code();
  };
  for (int i = 0; i < Access::kMostTries; ++i) {
    EXPECT_EQ(code("guess", "ipv4:10.0.0.7:1001"), StatusCode::kUnauthenticated);
  }
  EXPECT_EQ(code("look", "ipv4:10.0.0.7:1002"), StatusCode::kResourceExhausted);
  EXPECT_EQ(Login("look").code, 429);
  EXPECT_EQ(code("look", "ipv4:10.0.0.8:1001"), StatusCode::kOk);
  const std::string cookie = CookieIn(Login("look", "ipv4:10.0.0.8:1001"));
  HttpRequest logged_in = WithCookie(cookie, "");
  logged_in.from = "ipv4:10.0.0.7:1003";
  EXPECT_TRUE(access_.CheckLook(logged_in).ok()) << "who was in stays in";
  // Nor may many addresses take the memory.
  for (size_t i = 0; i <= Access::kMostAddresses; ++i) {
    (void)code("guess", fmt::format("ipv4:11.{}.{}.1:5", i / 256, i % 256));
  }
  EXPECT_EQ(code("guess", "ipv4:12.0.0.1:5"), StatusCode::kResourceExhausted);
  clock_.AdvanceMs(60'000);
  EXPECT_EQ(code("look", "ipv4:10.0.0.7:1002"), StatusCode::kOk);
}

TEST_F(AccessTest, AWrongTokenIsCalledThat) {
  const Status shown =
      access_.CheckLook(RequestOf({{"host", "mesh.example"}, {"authorization", "Bearer guess"}}));
  EXPECT_EQ(shown.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(shown.message(), HasSubstr("wrong token"));
  EXPECT_THAT(access_.CheckLook(RequestOf({{"host", "mesh.example"}})).message(),
              HasSubstr("wants a token"));
}

// "null" is what browsers say of a page that hides where it is.
TEST_F(AccessTest, TheFormIsForThisPageAlone) {
  for (const char* origin : {"null", "https://evil.example", "https://mesh.example:1"}) {
    HttpRequest request = RequestOf({{"host", "mesh.example"}, {"origin", origin}});
    request.body = "token=act%2b";
    const auto answer = access_.Login(request);
    EXPECT_EQ(answer.reply.code, 403) << origin;
    EXPECT_EQ(HeaderOf(answer.reply, "Set-Cookie"), "") << origin;
    EXPECT_EQ(access_.Logout(request).code, 403) << origin;
  }
}

TEST_F(AccessTest, ANewTokenInItsFileEndsWhatTheOldOneGave) {
  const TempDir dir = TempDir::Make().value();
  const auto write = [&dir](const char* name, const char* token) {
    ASSERT_TRUE(WriteFileAtomic(dir.File(name), token, 0600).ok());
  };
  write("look", "look\n");
  write("act", "act\n");
  Access access({LiveToken::InFile(dir.File("look"), clock_).value(),
                 LiveToken::InFile(dir.File("act"), clock_).value(), true},
                clock_);
  const auto login = [&](const std::string& token) {
    HttpRequest request = RequestOf({{"host", "mesh.example"}, {"origin", "https://mesh.example"}});
    request.body = "token=" + token;
    return access.Login(request);
  };
  const std::string cookie = CookieIn(login("act").reply);
  EXPECT_EQ(access.RoleOf(WithCookie(cookie, "")), Role::kOperator);
  write("act", "other\n");
  EXPECT_EQ(access.RoleOf(WithCookie(cookie, "")), Role::kOperator) << "it was looked at just now";
  clock_.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(access.RoleOf(WithCookie(cookie, "")), Role::kNobody);
  EXPECT_EQ(login("act").role, Role::kNobody);
  EXPECT_EQ(login("other").role, Role::kOperator);
  EXPECT_EQ(login("look").role, Role::kViewer) << "the other one is as it was";
  // Where both become the same, nobody gains by it.
  write("act", "look\n");
  clock_.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(login("look").role, Role::kViewer);
  // A file that says nothing changes nothing.
  write("look", "\n");
  clock_.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(login("look").role, Role::kViewer);
}

TEST_F(AccessTest, AnEmptyTokenIsNobodys) {
  const Access viewers_only({"look", "", false}, clock_);
  EXPECT_EQ(viewers_only.RoleOf(RequestOf({{"authorization", "Bearer "}})), Role::kNobody);
  const std::string forged = "meshwright_page=operator.99999999999999.x";
  EXPECT_EQ(viewers_only.RoleOf(WithCookie(forged, "")), Role::kNobody);
}

}  // namespace
}  // namespace meshwright::web
