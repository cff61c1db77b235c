// Text that becomes part of a page.
#ifndef TOOLS_REPORT_HTML_H_
#define TOOLS_REPORT_HTML_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tools {

// `text` as HTML text or as an attribute's value in double quotes: it cannot end either.
std::string EscapeHtml(absl::string_view text);

// `text` as a JavaScript and JSON string, quotes included, that may stand within <script>.
// Bytes that are no UTF-8 become U+FFFD.
std::string ScriptString(absl::string_view text);

// Rows of cells in a <div> that scrolls where the page is narrow. Cells and heads are HTML; the
// first cell of a row is its head. `caption` is text.
class HtmlTable {
 public:
  HtmlTable(absl::string_view id, absl::string_view caption, std::vector<std::string> heads);
  void AddRow(const std::vector<std::string>& cells);
  std::string Text() const;

 private:
  std::string html_;
};

}  // namespace tools

#endif  // TOOLS_REPORT_HTML_H_
