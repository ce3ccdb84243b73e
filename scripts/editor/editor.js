// The editor of the web page, as <markdown-editor>: CodeMirror around a textarea that the form goes on reading.
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, Language, defineLanguageFacet, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { GFM, parser } from "@lezer/markdown";

const markdown = new Language(defineLanguageFacet(), parser.configure([GFM]), [], "markdown");

const look = HighlightStyle.define([
  { tag: tags.heading, fontWeight: "600", color: "var(--accent)" },
  { tag: tags.strong, fontWeight: "600" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: tags.monospace, color: "var(--code)" },
  { tag: [tags.link, tags.url], color: "var(--accent)" },
  { tag: [tags.processingInstruction, tags.contentSeparator], color: "var(--faint)" },
  { tag: tags.quote, color: "var(--quiet)" },
]);

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--field)", fontSize: "0.9375rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", minHeight: "22rem", maxHeight: "70vh", padding: "0.4rem 0.5rem" },
  ".cm-activeLine": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--select) !important" },
});

// Over a selection of several lines the browser would keep looks by writing styles, which the page forbids.
const typing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || event.isComposing || view.state.selection.main.empty) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

class MarkdownEditor extends HTMLElement {
  connectedCallback() {
    const field = this.querySelector("textarea");
    if (!field || this.shadowRoot) return;
    // A shadow root takes its styles as objects, so that the page may forbid written ones.
    const shadow = this.attachShadow({ mode: "open" });
    const tell = EditorView.updateListener.of((update) => {
      if (!update.docChanged) return;
      field.value = update.state.doc.toString();
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    const label = field.getAttribute("aria-label") ?? field.labels?.[0]?.textContent.trim() ?? "Text";
    this.view = new EditorView({
      parent: shadow,
      root: shadow,
      state: EditorState.create({
        doc: field.value,
        extensions: [
          history(), drawSelection(), highlightActiveLine(), EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "true" }),
          keymap.of([...defaultKeymap, ...historyKeymap]),
          markdown, syntaxHighlighting(look), theme, tell, typing,
        ],
      }),
    });
  }

  disconnectedCallback() {
    this.view?.destroy();
  }
}

customElements.define("markdown-editor", MarkdownEditor);
