"""What an order that must not be kept unasked looks like, concern by concern and language by language.

Texts come in lower case, without accents that were written as separate marks. `…` in a pattern stands for anything
within a sentence, bounded, so that the work grows with the text and no faster.
"""

from __future__ import annotations

import re
from enum import Enum


class Concern(Enum):
    OVERRIDE = "it overrules instructions"
    CONFIRMATION = "it gives an order about confirmation"
    CREDENTIALS = "it gives an order about credentials"
    IDENTITY = "it gives an order about identity"
    CONCEALMENT = "it keeps something from the person"
    TOOL_OUTPUT = "it gives an order about tools' output"
    COPIED = "it copies instructions out of another text"
    SENDING = "it sends things away"


_GAPS = {"…": r"[^.!?;\n]{0,60}?", "‥": r"[^.!?;\n]{0,25}?"}

# Who or what is meant, in English.
_PERSON = r"(?:the )?(?:user|person|human|anyone|anybody|operator|owner|customer|people|them)"
_EARLIER = (
    r"(?:previous|prior|earlier|above|preceding|all|any|every|your|system|safety|original|existing|other|initial)"
)
_ORDER = (
    r"(?:instructions?|directives?|guidelines?|guardrails?|prompts?|rules?|polic(?:y|ies)|restrictions?|safeguards?|"
    r"orders?|messages?|constraints?|limits?|training|told|said)"
)
_OVERRIDE = (
    r"(?:ignore|ignoring|disregard\w*|forget|override|overriding|bypass\w*|discard|neglect|set aside|throw away|drop|"
    r"(?:do not|don't|stop|never|no longer) (?:follow|obey|heed|apply|respect|comply with)\w*|pay no attention to|supersedes?|"
    r"takes? (?:precedence|priority) over|outranks?|cancel|void|unlearn)"
)
_CONFIRM = r"(?:confirmation|approval|permission|consent|sign-?off|go-?ahead|authori[sz]ation|double-?check\w*)"
_ACT = (
    r"(?:delet|remov|run|execut|send|approv|accept|proceed|continu|go |go\b|commit|push|instal|pay|buy|transfer|merg|"
    r"deploy|grant|allow|do |do\b|mak|perform|appl|confirm|click|sign|overwrit|publish|act)\w*"
)
_ASKED = r"(?:^|[.!?;:,。！？]\s*|\b(?:always|should|must|may|can|please|then|and|just|to|you|simply|automatically|immediately) )"
_TOLD = r"(?:^|[.!?;:,。！？]\s*|\b(?:always|must|shall|please|then|you) )"
_SECRET = (
    r"(?:passwords?|passphrases?|credentials?|secrets?|(?:api|access|private|ssh|secret|encryption|signing)[- _]?keys?|"
    r"(?:access|auth|api|bearer|session|refresh|login|github|oauth)[- _]?tokens?|cookies|environment variables?|env vars?|"
    r"\.env\b(?: file)?|login data|2fa codes?|keychain|wallet)"
)
_SHOW = (
    r"(?:print|echo|reveal|disclose|display|dump|paste|leak|expose|show|tell|read out|log|output|repeat|recite|quote)"
)
_SEND = r"(?:send|post|upload|e-?mail|mail|share|forward|transmit|submit|attach|copy|exfiltrate|hand over|report|deliver|pass)"
_FAR = r"(?:https?:|www\.|\S+@\S+|webhook|server|chat|channel|me\b|us\b|pastebin|gist|attacker|outside|external|address|summary|answer|reply|response)"
_SOURCE = (
    r"(?:tools?(?:'s|s')? (?:output|results?|response)|tool (?:output|results?)|outputs? of|web ?pages?|websites?|"
    r"search results?|e-?mails?|retrieved|fetched|tool|the page|the site|comments?|documents?|issues?|tickets?|results?)"
)

_ENGLISH: tuple[tuple[Concern, str], ...] = (
    (Concern.OVERRIDE, rf"\b{_OVERRIDE}\b‥\b{_EARLIER}\b‥\b{_ORDER}\b"),
    (
        Concern.OVERRIDE,
        rf"\b{_OVERRIDE} (?:(?:the|these|those|any|its|my) ){{0,2}}(?:instructions?|directives?|guardrails?|system prompt|safety)\b",
    ),
    (
        Concern.OVERRIDE,
        rf"\b{_OVERRIDE} (?:everything|anything|what|whatever|all)\b‥\b(?:told|said|instructed|learned|know|before|above)\b",
    ),
    (
        Concern.OVERRIDE,
        r"\b(?:new|updated|real|actual|hidden|secret) (?:system )?(?:instructions|prompt|orders)\b‥(?:\b(?:are|is|follow|apply)\b|:)",
    ),
    (
        Concern.OVERRIDE,
        rf"\b{_EARLIER} {_ORDER} (?:are|is|were|have been) (?:\w+ )?(?:void|cancel\w*|obsolete|revoked|replaced|lifted|suspended|no longer)\b",
    ),
    (
        Concern.OVERRIDE,
        r"\b(?:instructions?|rules|guidelines?|directives?|system prompt)\b‥\b(?:are|is) (?:now )?(?:void|cancel\w*|obsolete|revoked|lifted|suspended)\b",
    ),
    (
        Concern.OVERRIDE,
        r"\b(?:disable|turn off|switch off|escape|deactivate|circumvent)\b‥\b(?:sandbox|safety|guardrails?|content filters?|audit log|safeguards?|moderation)\b",
    ),
    (
        Concern.CONFIRMATION,
        rf"{_ASKED}(?:auto-?)?(?:approve|authori[sz]e|grant|allow|accept|agree|say yes|answer yes|permit|green-?light|confirm(?= (?:all|any|every)))\b‥\b(?:all|any|every|everything|each|whatever|requests?|automatically|anything|purchases?|payments?|transactions?|transfers?|without|prompts?|questions?|permissions?|always)\b",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:always|automatically|blindly|silently) (?:approve|authori[sz]e|grant|accept|agree|say yes|answer yes|confirm|permit)\b",
    ),
    (
        Concern.CONFIRMATION,
        rf"\b(?:skip|bypass|suppress|avoid|omit|turn off|disable|ignore|forgo|dispense with|don't (?:wait|ask|request|seek|need)|do not (?:wait|ask|request|seek|need)|never (?:wait|ask|request|require|seek|need)|no need (?:for|to)|stop (?:asking|waiting)|instead of asking|rather than asking|there is no need)\b‥\b(?:{_CONFIRM}|confirm|approve|ask (?:the user|first|anyone)|(?:ask|wait)\w* (?:for )?(?:them|him|her|the user)|before (?:delet|remov|send|pay|buy|run|push|overwrit|publish|deploy)\w*)\b",
    ),
    (
        Concern.CONFIRMATION,
        rf"{_ASKED}{_ACT}\b…\bwithout\b‥\b(?:asking|{_CONFIRM}|confirming|checking with|prompting|being asked|question)\b",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:treat|consider|assume|regard|count)\b…\b(?:pre-?approved|approved|authori[sz]ed|confirmed|consent\w*|as (?:a )?yes)\b",
    ),
    (
        Concern.CONFIRMATION,
        rf"\b(?:{_PERSON}|you) (?:has|have) (?:already )?(?:approved|authori[sz]ed|agreed|consented|given (?:permission|consent))\b‥\b(?:all|any|every|everything|future|in advance)\b",
    ),
    (
        Concern.CREDENTIALS,
        rf"(?<!\w){_SHOW}\b(?! how| that| when| where)‥(?<!\w){_SECRET}(?! (?:prefix|name|field|format|error|length|count|scheme))",
    ),
    (
        Concern.CREDENTIALS,
        rf"(?<!\w){_SEND}\b‥(?<!\w){_SECRET}(?![^.!?;\n]{{0,60}}\b(?:header|authori[sz]ation|bearer|vault|keyring|query|parameter|body|form)\b)",
    ),
    (
        Concern.CREDENTIALS,
        rf"(?<!\w)(?:{_SEND}|{_SHOW}|include|put|append|write|add|give|provide|store|save)\b‥(?<!\w)(?:{_SECRET}|tokens?|keys?|password)\b…\b(?:to|in|into|at|on|with)\b‥(?:{_FAR})(?![^.!?;\n]{{0,40}}\bheader)",
    ),
    (
        Concern.CREDENTIALS,
        r"\b(?:use|enter|try|type|borrow|take)\b‥\b(?:admin|root|user's|users'|my|his|her|their|saved|stored|someone's|other people's)\b‥\b(?:passwords?|credentials?|logins?|tokens?|keys?)\b",
    ),
    (
        Concern.CREDENTIALS,
        rf"\b(?:ask|request|demand|get|collect|harvest|steal)\b‥\b(?:from )?{_PERSON}\b‥\b(?:passwords?|credentials?|passphrases?|2fa|pin|private key)\b",
    ),
    (
        Concern.CREDENTIALS,
        rf"{_ASKED}(?:read|open|cat|collect|gather|harvest|search for|look for|find|fetch)\b‥(?:(?<!\w){_SECRET}|~/\.(?:ssh|aws|netrc)|\bid_rsa\b)…\b(?:and|then|to)\b‥\b(?:{_SEND}|{_SHOW}|include|add|use)\b",
    ),
    (Concern.IDENTITY, r"\byou(?:'re| are| will be| shall be) (?:now|no longer|from now on|henceforth|actually)\b"),
    (
        Concern.IDENTITY,
        r"\b(?:from now on|henceforth|starting now|going forward),? (?:you|your|act|always (?:answer|respond|obey))\b",
    ),
    (
        Concern.IDENTITY,
        rf"{_TOLD}(?:act as|pretend (?:to be|that|you)|role-?play|impersonate|behave (?:as|like)|speak as|assume the (?:role|identity|persona)|call yourself|identify (?:yourself )?as|present yourself)\b",
    ),
    (
        Concern.IDENTITY,
        r"\byour (?:new |real |true |only )?(?:name|role|identity|persona|purpose|master|owner|creator|developer|goal|mission|loyalty) (?:is|are)\b",
    ),
    (
        Concern.IDENTITY,
        r"\b(?:i am|i'm|this is|we are) (?:your|the|an?) (?:new )?(?:developer|admin\w*|owner|creator|operator|system|supervisor|anthropic|openai)\b",
    ),
    (
        Concern.IDENTITY,
        r"\b(?:developer|god|dan|jailbreak|unrestricted|debug|admin|root) mode\b‥\b(?:enabled|activated|active|on|engaged|enter|switch)\b|\b(?:enter|switch to|enable|activate)\b‥\b(?:developer|god|dan|jailbreak|unrestricted) mode\b",
    ),
    (Concern.IDENTITY, r"\byou (?:have|follow|know) no (?:rules|restrictions|limits|limitations|guidelines|filters)\b"),
    (Concern.IDENTITY, r"\b(?:obey|answer|be loyal|report) only (?:to )?(?:me|us|him|her|the)\b"),
    (
        Concern.CONCEALMENT,
        r"\b(?:do not|don't|never|avoid|without|refrain from|no need to|must not|should not)\b‥\b(?:tell\w*|mention\w*|inform\w*|reveal\w*|report\w*|notify\w*|alert\w*|disclos\w*|let\w*)\b‥\b(?:the )?(?:user|person|human|anyone|anybody|operator|owner|customer)\b(?! (?:interface|agent|input|id|name|table))",
    ),
    (
        Concern.CONCEALMENT,
        r"\b(?:do not|don't|never)\b‥\b(?:show|mention|reveal|report|disclose|tell)\b (?:this|that|it|these)\b‥\bto\b",
    ),
    (
        Concern.CONCEALMENT,
        rf"\b(?:hide|conceal|keep)\b‥\b(?:this|that|it|these|everything|changes?|errors?|actions?)\b‥\b(?:from {_PERSON}|secret|hidden|to yourself|quiet|between us)\b",
    ),
    (
        Concern.CONCEALMENT,
        r"\b(?:secretly|covertly|behind (?:the user|their|his|her)'?s? back|without (?:the user|anyone|them) (?:knowing|noticing))\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        rf"\b(?:follow|obey|execute|carry out|comply with|act on|perform|honou?r|do)\b‥\b(?:instructions?|commands?|orders?|whatever|anything|what|everything|requests?|directives?)\b‥\b(?:in|from|on|of|inside|within|contained|returned|given|found|by|the)\b‥\b{_SOURCE}\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:do|follow|obey|believe|trust|accept)\b‥\b(?:whatever|anything|everything|exactly what|all that)\b‥\b(?:says?|asks?|tells?|returns?|wants?|output|requests?|demands?)\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:always |blindly |fully )?trust\b‥\b(?:tool|tools|web|page|pages|search|e-?mails?)\b‥\b(?:output|results?|instructions?|content|says?)\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:treat|regard|consider)\b‥\b(?:tool|page|web|e-?mail|document|search|file)\b‥\bas\b‥\b(?:instructions?|commands?|orders?|trusted|system)\b",
    ),
    (
        Concern.COPIED,
        r"<\|?/?(?:im_start|im_end|system|assistant|user|human|tool_result|tool_use|function_calls?|instructions?)\b|\[/?(?:inst|system)\]|<<sys>>",
    ),
    (
        Concern.COPIED,
        r"(?:^|\s|#+ ?)(?:system|assistant|developer|human|instructions?|system prompt|system message) ?:(?!\S)",
    ),
    (
        Concern.COPIED,
        r"\b(?:begin|end|start of|end of) (?:system|instructions?|prompt|override)\b|### ?(?:instruction|system|response)",
    ),
    (
        Concern.COPIED,
        r"\b(?:dear|hey|attention|note to|message (?:to|for)|instructions? (?:to|for)|important for)\b‥\b(?:ai|llms?|assistants?|agents?|language models?|chatbots?|model)\b",
    ),
    (
        Concern.COPIED,
        r"\b(?:ai|llm|language model|assistant|agent|chatbot)s?\b,? (?:reading this|must|should|are (?:required|instructed|ordered)|has to|have to|is (?:required|instructed|ordered))\b",
    ),
    (
        Concern.COPIED,
        rf"\b(?:{_SOURCE}|it) (?:told|instruct\w*|order\w*|command\w*|asks?|asked|says|said) (?:me|you|us|the (?:agent|assistant|model|ai)) to\b",
    ),
    (
        Concern.SENDING,
        r"(?<!\w)(?:send|post|upload|forward|copy|report|submit|exfiltrate|mail|e-?mail)\b‥\b(?:conversations?|chat history|history|transcripts?|everything|memory|memories|system prompt|a copy|all (?:files|data|messages|documents)|every (?:file|message|document)|private|personal data|customer data)\b…(?:https?:|www\.|\S+@\S+|\b(?:to|webhook|server|bcc|external)\b)",
    ),
    (
        Concern.SENDING,
        r"\b(?:curl|wget)\b[^|\n]{0,200}\|\s*(?:sudo )?(?:ba|z|da)?sh\b|base64 (?:-d|--decode)[^|\n]{0,80}\|\s*(?:ba)?sh\b",
    ),
    (Concern.SENDING, r"\b(?:bcc|cc)\b‥\S+@\S+"),
)

_OTHERS: tuple[tuple[Concern, str], ...] = (
    # German
    (
        Concern.OVERRIDE,
        r"\b(?:ignoriere?|ignorieren sie|missachte|vergiss|vergessen sie|umgehe|überschreibe|befolge (?:nicht|keine)|verwirf|beachte (?:nicht|keine)|halte dich nicht an)\b…\b(?:anweisung|instruktion|vorgabe|regel|richtlinie|prompt|systemprompt|befehl|sicherheits)\w*",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:genehmige|bestätige|erlaube|akzeptiere|stimme)\b‥\b(?:immer|alle|alles|jede\w*|automatisch|stets|ohne)\b|\b(?:immer|automatisch|stets)\b‥\b(?:genehmig|bestätig|erlaub|akzeptier|zustimm)\w*",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:lösche|sende|führe|überweise|kaufe|installiere|mache?|handle|fahre|veröffentliche|bezahle|frage? (?:nie|nicht|niemals))\b…\b(?:ohne\b‥\b(?:nachfrage|rückfrage|zu fragen|bestätigung|erlaubnis|zustimmung|genehmigung)|um (?:erlaubnis|bestätigung)|nach (?:erlaubnis|bestätigung)|bevor du)",
    ),
    (
        Concern.CREDENTIALS,
        r"\b(?:sende|schicke?|übermittle|lade|übertrage|gib|kopiere|zeige|drucke|verrate|nenne|poste)\b…\b(?:passw[oö]rt\w*|zugangsdaten|geheim\w*|api-?schlüssel|private\w* schlüssel|zugriffstoken|umgebungsvariablen|anmeldedaten)\b",
    ),
    (
        Concern.IDENTITY,
        r"\bdu bist (?:jetzt|nun|ab sofort|ab jetzt|nicht mehr)\b|\b(?:ab sofort|ab jetzt|von nun an) (?:bist|heißt|antwortest|gehorchst)\b|\b(?:gib dich als|verhalte dich (?:wie|als)|tu so, als)\b",
    ),
    (
        Concern.CONCEALMENT,
        r"\b(?:sage?|erzähle?|verrate|erwähne|melde|informiere)\b‥\b(?:nutzer|benutzer|anwender|user|niemand\w*|mensch\w*)\b‥\b(?:nichts|nicht|nie|niemals|kein\w*)\b|\b(?:verschweige|verheimliche|verbirg)\b|\bohne\b‥\b(?:nutzer|benutzer|anwender)\w*\b‥\b(?:informieren|wissen|sagen)\b|\bohne wissen\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:befolge|folge|führe|gehorche|tu|mach)\b‥\b(?:anweisungen|befehle?|alles|was)\b‥\b(?:werkzeug\w*|ausgaben?|webseiten?|seite|e-?mails?|tool\w*|ergebnis\w*|dokument\w*)\b",
    ),
    # French
    (
        Concern.OVERRIDE,
        r"\b(?:ignore|ignorez|ignorer|oublie|oubliez|contourne|contournez|outrepasse|ne (?:suis|suivez|respecte) (?:pas|plus)|fais abstraction)\b…\b(?:instructions?|consignes?|règles?|directives?|ordres?|regles?|invite système)\b",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:approuve|approuvez|accepte|acceptez|autorise|autorisez|confirme|confirmez|valide|validez)\b‥\b(?:toujours|tout|toutes|tous|automatiquement|sans|systématiquement|chaque)\b|\b(?:toujours|automatiquement)\b‥\b(?:approuver|accepter|autoriser|confirmer|valider)\b|\b(?:supprime|envoie|exécute|paie|installe|ne demande\w*)\b…\b(?:sans (?:demander|confirmation|autorisation|permission)|confirmation|permission|autorisation)\b",
    ),
    (
        Concern.CREDENTIALS,
        r"\b(?:envoie|envoyez|envoyer|transmets|transmettez|téléverse|affiche|affichez|copie|partage|partagez|donne|révèle)\b…\b(?:mots? de passe|identifiants?|clés? (?:api|privées?|d'accès)|secrets?|jetons?|variables d'environnement)\b",
    ),
    (
        Concern.IDENTITY,
        r"\b(?:tu es|vous êtes) (?:maintenant|désormais)\b|\b(?:désormais|à partir de maintenant),? (?:tu|vous)\b|\b(?:fais semblant|comporte-toi comme|agis comme|fais-toi passer)\b",
    ),
    (
        Concern.CONCEALMENT,
        r"\bne\b‥\b(?:dis|dites|informe|informez|mentionne|mentionnez|révèle|révélez|préviens|parle|signale)\b‥\b(?:pas|rien|jamais|à personne)\b|\bsans\b‥\b(?:informer|prévenir|avertir|que)\b‥\b(?:utilisateur|personne)\b|\bcache\b‥\bà l'utilisateur\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:suis|suivez|exécute|obéis|obéissez|applique)\b‥\b(?:instructions|ordres|commandes|tout ce que)\b‥\b(?:outils?|pages?|sites?|résultats?|courriels?|e-?mails?|documents?)\b",
    ),
    # Spanish and Portuguese
    (
        Concern.OVERRIDE,
        r"\b(?:ignora|ignore|ignorar|olvida|olvide|descarta|omite|desobedece|no sigas|esqueça|desconsidere|desobedeça|não siga)\b…\b(?:instrucciones|reglas|indicaciones|directrices|órdenes|instruções|regras|diretrizes|ordens)\b",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:aprueba|apruebe|acepta|acepte|autoriza|autorice|confirma|confirme|permite|aprove|aceite|autorize)\b‥\b(?:siempre|todo|todas|todos|cualquier|automáticamente|sin|sempre|tudo|qualquer|sem)\b|\b(?:siempre|automáticamente|sempre)\b‥\b(?:aprueba|aprobar|acepta|aceptar|autoriza|confirma|aprove|aceite|confirme)\w*|\b(?:borra|elimina|envía|ejecuta|paga|instala|no pidas|apague|envie|não peça)\b…\b(?:sin (?:preguntar|confirmación|permiso|confirmar)|sem (?:perguntar|confirmação|permissão)|confirmación|permiso|permissão|confirmação)\b",
    ),
    (
        Concern.CREDENTIALS,
        r"\b(?:envía|envíe|enviar|envia|manda|sube|transmite|muestra|imprime|copia|comparte|revela|envie|mostre|compartilhe)\b…\b(?:contraseñas?|credenciales|claves? (?:api|privadas?|de acceso)|secretos|variables de entorno|senhas?|credenciais|chaves? (?:api|privadas?))\b",
    ),
    (
        Concern.IDENTITY,
        r"\b(?:ahora eres|eres ahora|a partir de ahora,? (?:eres|responde|obedece)|agora você é|você agora é|a partir de agora,? você)\b|\b(?:actúa como|finge (?:ser|que)|hazte pasar|haz como si|aja como|finja ser)\b",
    ),
    (
        Concern.CONCEALMENT,
        r"\b(?:no|nunca|jamás|não)\b‥\b(?:digas|diga|informes|informe|menciones|mencione|reveles|revele|avises|cuentes|conte)\b‥\b(?:usuario|usuaria|nadie|cliente|usuário|ninguém)\b|\bsin que\b‥\b(?:usuario|nadie)\b|\boculta\b‥\busuario\b|\bsem que\b‥\busuário\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:sigue|obedece|ejecuta|cumple|siga|obedeça|execute)\b‥\b(?:instrucciones|órdenes|todo lo que|lo que|instruções|ordens)\b‥\b(?:herramientas?|páginas?|sitios?|resultados?|correos?|documentos?|ferramentas?)\b",
    ),
    # Italian, Dutch, Polish, Turkish
    (
        Concern.OVERRIDE,
        r"\b(?:ignora|ignorare|dimentica|trascura|non seguire)\b…\b(?:istruzioni|regole|direttive|ordini)\b|\b(?:negeer|vergeet|omzeil|volg (?:niet|geen))\b…\b(?:instructies|aanwijzingen|regels|opdrachten|richtlijnen)\b|\b(?:zignoruj|ignoruj|zapomnij|pomiń)\b…\b(?:instrukcj|polece|zasad|regu)\w*|\b(?:önceki|tüm|bütün)\b‥\b(?:talimat|kural|komut)\w*‥\b(?:yok say|unut|görmezden|dikkate alma)\w*",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:approva|accetta|conferma|autorizza)\b‥\b(?:sempre|tutto|tutte|ogni|senza|automaticamente)\b|\bsenza\b‥\b(?:chiedere|conferma|permesso)\b|\b(?:keur|accepteer|bevestig|sta)\b‥\b(?:altijd|alles|alle|elke|zonder|automatisch)\b‥(?:\bgoed\b|\btoe\b|$|\.)|\bzonder te vragen\b|\b(?:zawsze|automatycznie)\b‥\b(?:zatwierdz|akceptuj|potwierdz)\w*|\bbez (?:pytania|potwierdzenia|zgody)\b|\b(?:her zaman|daima|sormadan)\b‥\b(?:onayla|kabul et)\w*",
    ),
    (
        Concern.CREDENTIALS,
        r"\b(?:invia|manda|mostra|condividi|copia|rivela)\b…\b(?:password|credenziali|chiavi? (?:api|privat\w+)|segreti)\b|\b(?:stuur|verzend|toon|deel|kopieer)\b…\b(?:wachtwoord\w*|inloggegevens|api-?sleutels?|geheimen)\b|\b(?:wyślij|prześlij|pokaż|skopiuj)\b…\b(?:hasł|dane logowania|klucz\w* (?:api|prywatn)|tokeny)\w*|\b(?:şifre|parola|api anahtar)\w*‥\b(?:gönder|paylaş|yazdır)\w*",
    ),
    (
        Concern.IDENTITY,
        r"\b(?:ora sei|sei ora|d'ora in poi|fingi di|comportati come|je bent (?:nu|vanaf nu)|vanaf nu (?:ben|heet)|doe alsof|jesteś teraz|od teraz jesteś|udawaj|artık sen)\b",
    ),
    (
        Concern.CONCEALMENT,
        r"\bnon\b‥\b(?:dire|dirlo|informare|menzionare|rivelare)\b‥\b(?:utente|nessuno)\b|\b(?:vertel|zeg|meld)\b‥\b(?:gebruiker|niemand)\b‥\b(?:niets|niet|nooit)\b|\bnie (?:mów|informuj|wspominaj)\b‥\b(?:użytkownik|nikomu)\w*|\bkullanıcıya\b‥\b(?:söyleme|bildirme)\w*",
    ),
    # Russian and Ukrainian
    (
        Concern.OVERRIDE,
        r"\b(?:игнорируй|игнорируйте|игнорировать|проигнорируй|забудь|забудьте|отбрось|нарушай|не следуй|обойди|ігноруй|забудь|не виконуй)\w*\b…\b(?:инструкц|указани|правил|команд|промпт|ограничени|інструкц|вказівк)\w*",
    ),
    (
        Concern.CONFIRMATION,
        r"\b(?:одобряй|одобри|подтверждай|подтверди|разрешай|принимай|соглашайся|схвалюй)\w*\b‥\b(?:всегда|все|всё|любые|автоматически|без|каждый|завжди)\b|\b(?:всегда|автоматически|завжди)\b‥\b(?:одобря|подтвержда|разреша|принима|соглаша|схвалю)\w*|\b(?:удаляй|отправляй|выполняй|плати|устанавливай|делай|не спрашивай)\w*\b…\b(?:без (?:спроса|подтверждения|разрешения|вопросов|согласия)|разрешени|подтверждени)\w*",
    ),
    (
        Concern.CREDENTIALS,
        r"\b(?:отправь|отправьте|отправляй|перешли|загрузи|пошли|передай|скопируй|покажи|выведи|напечатай|надішли)\w*\b…\b(?:парол|api-?ключ|ключи? (?:api|доступа)|токен|секрет|учетн\w+ данн|переменн\w+ (?:среды|окружения)|приватн\w+ ключ)\w*",
    ),
    (
        Concern.IDENTITY,
        r"\b(?:теперь ты|ты теперь|отныне ты|с этого момента ты|притворись|веди себя как|действуй как|представь, что ты|тепер ти)\b",
    ),
    (
        Concern.CONCEALMENT,
        r"\b(?:не|никогда не)\b‥\b(?:говори|говорите|сообщай|сообщайте|рассказывай|упоминай|показывай|раскрывай|информируй|кажи)\b‥\b(?:пользовател|никому|человек|користувач)\w*|\b(?:без ведома|втайне от|скрой от|скрывай от)\b",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"\b(?:выполняй|следуй|исполняй|подчиняйся|делай)\w*\b‥\b(?:инструкци|команд|указани|все|всё|что)\w*\b‥\b(?:инструмент|страниц|сайт|письм|результат|документ|вывод)\w*",
    ),
    # Chinese, Japanese, Korean
    (
        Concern.OVERRIDE,
        r"(?:忽略|无视|忘记|忘掉|忽視|無視|不要遵守|不要遵循|绕过|覆盖|抛弃)[^。！？\n]{0,12}(?:指令|指示|提示|规则|規則|命令|限制|要求|说明)|(?:以前|これまで|上記|すべて|全て|システム|先ほど|今まで|前)[^。！？\n]{0,12}(?:指示|命令|プロンプト|ルール|規則|制約)[^。！？\n]{0,8}(?:無視|忘れ|破棄|従わ)|(?:이전|앞의|위의|모든|시스템)[^.!?\n]{0,12}(?:지시|명령|프롬프트|규칙)[^.!?\n]{0,8}(?:무시|잊)",
    ),
    (
        Concern.CONFIRMATION,
        r"(?:总是|始终|一律|自动|永远|總是|一律)(?:地)?(?:批准|同意|确认|允许|接受|授权|通过)|(?:批准|同意|确认|允许|授权)(?:所有|一切|任何|全部)|(?:无需|不需要|不必|不用|不要|未经)[^。！？\n]{0,8}(?:确认|询问|批准|许可|同意|征求)|(?:常に|必ず|自動的に)[^。！？\n]{0,8}(?:承認|許可|同意)|確認(?:なし|せず)に?|(?:항상|자동으로|무조건)[^.!?\n]{0,10}(?:승인|허용|동의)",
    ),
    (
        Concern.CREDENTIALS,
        r"(?:发送|上传|传送|提交|转发|泄露|输出|打印|显示|發送|上傳|告诉|复制|发给)[^。！？\n]{0,20}(?:密码|密钥|凭证|凭据|令牌|私钥|环境变量|密碼|憑證)|[把将](?:[^。！？\n]{0,8})(?:密码|密钥|凭证|凭据|令牌|私钥|环境变量)[^。！？\n]{0,12}(?:发送|上传|传送|转发|發送|发给|打印|输出)|(?:パスワード|認証情報|秘密鍵|apiキー|トークン|環境変数)[^。！？\n]{0,20}(?:送信|送って|アップロード|転送|表示|出力)|(?:비밀번호|자격 증명|api 키|토큰)[^.!?\n]{0,15}(?:보내|전송|출력|업로드)",
    ),
    (
        Concern.IDENTITY,
        r"(?:你现在是|现在你是|从现在起你|从现在开始，?你|你不再是|假装你|扮演|请扮演)|(?:あなたは今から|今からあなたは|のふりをし|として振る舞)|(?:너는 이제|당신은 이제|지금부터 너는|인 척)",
    ),
    (
        Concern.CONCEALMENT,
        r"(?:不要|别|勿|切勿|不得|禁止|不能|不可)(?:告诉|告知|通知|让|向|对)[^。！？\n]{0,6}(?:用户|使用者|用戶|任何人|他人)|(?:瞒着|背着|隐瞒|避免让)[^。！？\n]{0,4}(?:用户|使用者|用戶)|(?:ユーザー?|利用者)[^。！？\n]{0,12}(?:言わない|伝えない|知らせない|教えない|内緒|秘密に|隠)|사용자(?:에게|한테)?[^.!?\n]{0,10}(?:말하지|알리지|숨기)",
    ),
    (
        Concern.TOOL_OUTPUT,
        r"(?:遵循|执行|服从|照做|按照)[^。！？\n]{0,10}(?:工具|网页|页面|搜索结果|邮件|文档|输出)[^。！？\n]{0,12}(?:指令|指示|命令|要求|说的)|(?:ツール|ウェブページ|ページ|メール)[^。！？\n]{0,10}(?:指示|命令)[^。！？\n]{0,6}(?:従|実行)",
    ),
    # Arabic and Hindi
    (
        Concern.OVERRIDE,
        r"(?:تجاهل|انس|تجاوز)[^.!؟\n]{0,20}(?:التعليمات|الأوامر|القواعد|تعليمات)|(?:पिछले|सभी|पूर्व)[^।!?\n]{0,15}(?:निर्देश|आदेश|नियम)[^।!?\n]{0,10}(?:अनदेखा|नज़रअंदाज़|भूल)",
    ),
    (
        Concern.CONFIRMATION,
        r"(?:وافق|اقبل)[^.!؟\n]{0,10}(?:دائما|دائمًا|على كل|جميع)|(?:دائما|دائمًا)[^.!؟\n]{0,6}(?:وافق|اقبل)|بدون (?:تأكيد|إذن|سؤال)|(?:हमेशा)[^।!?\n]{0,12}(?:स्वीकृत|मंज़ूर|अनुमति)",
    ),
    (
        Concern.CREDENTIALS,
        r"(?:أرسل|ارسل|اطبع)[^.!؟\n]{0,15}(?:كلمات? (?:المرور|السر)|كلمة|بيانات الاعتماد|مفاتيح)|(?:पासवर्ड|क्रेडेंशियल)[^।!?\n]{0,15}(?:भेज|दिखा|छाप)",
    ),
)


def _compiled(pattern: str) -> re.Pattern[str]:
    for sign, gap in _GAPS.items():
        pattern = pattern.replace(sign, gap)
    return re.compile(pattern)


ORDERS: tuple[tuple[Concern, re.Pattern[str]], ...] = tuple(
    (concern, _compiled(pattern)) for concern, pattern in (*_ENGLISH, *_OTHERS)
)
