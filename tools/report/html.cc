#include "tools/report/html.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace tools {

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string ScriptString(absl::string_view text) {
  const std::string json =
      nlohmann::json(std::string(text))
          .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return absl::StrReplaceAll(json, {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

HtmlTable::HtmlTable(absl::string_view id, absl::string_view caption,
                     std::vector<std::string> heads) {
  absl::StrAppend(&html_, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"",
                  EscapeHtml(caption), "\"><table id=\"", id, "\"><caption>", EscapeHtml(caption),
                  "</caption><thead><tr>");
  for (const std::string& head : heads)
    absl::StrAppend(&html_, "<th scope=\"col\">", head, "</th>");
  absl::StrAppend(&html_, "</tr></thead><tbody>\n");
}

void HtmlTable::AddRow(const std::vector<std::string>& cells) {
  absl::StrAppend(&html_, "<tr>");
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&html_, i == 0 ? "<th scope=\"row\">" : "<td>", cells[i],
                    i == 0 ? "</th>" : "</td>");
  }
  absl::StrAppend(&html_, "</tr>\n");
}

std::string HtmlTable::Text() const { return absl::StrCat(html_, "</tbody></table></div>\n"); }

}  // namespace tools
